"""Topics of Protobuf: schemas compiled by protoc, values by Confluent's own serializer."""

from __future__ import annotations

import uuid
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message import Message

from tests.integration.support.engine import Engine


def protobuf_topic(engine: Engine, text: str | None = None, *, partitions: int = 1) -> str:
    """A new topic and, where it is given, its registered value schema."""
    topic = f"t{uuid.uuid4().hex[:12]}"
    engine.create(topic, partitions=partitions)
    if text is not None:
        register(engine, topic, text)
    return topic


def register(
    engine: Engine, topic: str, text: str, *, references: list[SchemaReference] | None = None
) -> int:
    registered = Schema(text, "PROTOBUF", references or [])
    return int(engine.registry.register_schema(f"{topic}-value", registered))


def frame(schema_id: int, indexes: bytes = b"\x00") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + indexes


def send(
    engine: Engine, topic: str, schema_id: int, message: Message | bytes, indexes: bytes = b"\x00"
) -> None:
    payload = message if isinstance(message, bytes) else message.SerializeToString()
    engine.send(topic, frame(schema_id, indexes) + payload, partition=0)


def serializer(engine: Engine, topic: str, kind: type[Message]) -> Any:
    """A function from a message to the value that Confluent's serializer makes of it; it registers the schema in binary form."""
    made = ProtobufSerializer(kind, engine.registry, conf={"use.deprecated.format": False})
    return lambda message: made(message, SerializationContext(topic, MessageField.VALUE))
