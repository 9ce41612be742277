"""The message of a dead letter: where and why its value or key does not match the schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType

from calve.decoding.decode_plan import DecodePlan
from calve.schema.wire import BARE
from calve.schema.writers import AvroWriter, JsonWriter, PlainWriter, ProtobufWriter, Writer
from glue_jobs.decode.explaining import avro_values, json_values, protobuf_values
from glue_jobs.decode.explaining.walk import Misfit, Walk

EXPLAINED = ("malformed", "trailing_bytes", "incompatible_schema", "key_malformed", "key_incompatible_schema")
"""Reject reasons with an explanation: of the key if they begin with `key_`, else of the value."""
MOST_EXPLAINED = 1_000
"""The most explained records per reason and task. The others get the sentence of their reason."""
MOST_STEPS, STEPS_OF_ONE = 5_000_000, 200_000


@dataclass(slots=True)
class Explainer:
    """Explains records until its steps are used up. Returns None if it finds nothing wrong; never raises."""

    decoding: DecodePlan
    left: int = MOST_STEPS
    counts: Counter[str] = field(default_factory=Counter)

    def explain(self, reason: str, data: bytes) -> str | None:
        part = "key" if reason.startswith("key_") else "value"
        self.counts[reason] += 1
        if self.counts[reason] > MOST_EXPLAINED or self.left <= 0:
            return None
        decoding = self.decoding.key if part == "key" else self.decoding
        wire = decoding.wire if decoding else BARE
        if wire.deflated and data.startswith(wire.deflated):
            data = wire.plain(data) or data
        walk = Walk(f"the {part}", min(STEPS_OF_ONE, self.left))
        given = walk.left
        try:
            for writer in decoding.writers if decoding else ():
                _explain(data, writer, walk, by_message=reason.endswith("incompatible_schema"))
        except Misfit as misfit:
            return str(misfit)
        except Exception:  # noqa: BLE001 it gave up or failed: an explanation must not lose the dead letter
            return None
        finally:
            self.left -= given - walk.left
        return None


def explanation(decoding: DecodePlan, reason: Column, value: Column, key: Column) -> Column:
    """The explanation, or null. `value` and `key`: as `named_column`."""

    def explained(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        explainer = Explainer(decoding)
        for reasons, parts in batches:
            found = [
                None if data is None else explainer.explain(each, data)
                for each, data in zip(reasons.to_pylist(), (each.as_py() for each in parts), strict=True)
            ]
            yield pa.array(found, pa.string())

    part = F.when(reason.startswith("key_"), key).otherwise(value)
    made: Any = arrow_udf(explained, StringType())  # type: ignore[call-overload]
    found: Column = made.asNondeterministic()(reason, F.when(reason.isin(*EXPLAINED), part))
    return found


def _explain(data: bytes, writer: Writer, walk: Walk, *, by_message: bool) -> None:
    """Raises `Misfit` if the value does not match. by_message: if it is another message of the writer's file."""
    if by_message:
        if isinstance(writer, ProtobufWriter):
            for name in (name for prefix, name in writer.others.items() if data.startswith(prefix)):
                raise walk.wrong(f"the message {writer.message}", f"the message {name}")
        return
    if not data.startswith(writer.prefix):
        return
    match writer:
        case AvroWriter():
            avro_values.explain(data, writer, walk)
        case JsonWriter():
            json_values.explain(data, writer, walk)
        case ProtobufWriter():
            protobuf_values.explain(data, writer, walk)
        case PlainWriter() if writer.text:
            raise walk.wrong("a text in UTF-8", "other bytes")
