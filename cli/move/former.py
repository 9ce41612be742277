"""Where the former writer of a table stopped: by the columns that it filled, and by what it noted in the history (ADR 74)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calve.config.job import Kafka
from calve.errors import CalveError
from calve.schema.columns import Json
from calve.schema.evolution import column_at
from calve.table.position import Offsets
from calve.table.protocol import TopicState
from calve.table.summary import ends_of, has_position
from cli import lake
from cli.kafka import Cluster
from cli.verify.topic import Reader

if TYPE_CHECKING:
    from pyiceberg.table import Table

CONNECT = "kafka.connect.offsets."
"""Iceberg's sink notes in each commit how far it has read its control topic: this, the control topic, a dot, its group."""
PENDING = "DataWritten"
"""The event of the control topic that names files which a later commit adds to the table."""
MAGIC = b"\xc2\x01"


@dataclass(frozen=True, slots=True)
class PlaceColumns:
    """Columns with the place of a row's record. topic: None: rows do not name it."""

    writer: str
    partition: str
    offset: str
    topic: str | None = None


LAYOUTS = (
    PlaceColumns("calve or Kafka Connect", "_kafka.partition", "_kafka.offset", "_kafka.topic"),
    PlaceColumns("Tableflow", "$$partition", "$$offset", "$$topic"),
    PlaceColumns("Tableflow", "cflt_metadata_partition", "cflt_metadata_offset", "cflt_metadata_topic"),
    PlaceColumns("Redpanda", "redpanda.partition", "redpanda.offset"),
    PlaceColumns(
        "Kafka Connect", "_kafka_metadata_partition", "_kafka_metadata_offset", "_kafka_metadata_topic"
    ),
    PlaceColumns(
        "Kafka Connect", "_kafka_metadata.partition", "_kafka_metadata.offset", "_kafka_metadata.topic"
    ),
    PlaceColumns("AutoMQ", "_kafka_metadata.partition", "_kafka_metadata.offset"),
)


def place_columns(table: Json) -> PlaceColumns | None:
    """The columns of the first layout that the table has."""

    def has(each: PlaceColumns) -> bool:
        paths = filter(None, (each.partition, each.offset, each.topic))
        return all(column_at(table, path) is not None for path in paths)

    return next(filter(has, LAYOUTS), None)


def noted_offsets(
    table: Table, cluster: Cluster, kafka: Kafka, region: str, topic: TopicState
) -> Offsets | None:
    """The next offsets that the last writer noted in the table's history: calve before a release, or Iceberg's sink for Kafka
    Connect. None: there is no note.

    Raises CalveError: the sink still runs, or it has written files that no snapshot has.
    """
    for each in lake.ancestors(table):
        if has_position(each.summary):
            return ends_of(each.summary).get(topic.key)
        if noted := _noted(each.summary):
            return _of_connect(noted, cluster, kafka, region, topic.name)
    return None


def _of_connect(
    noted: Mapping[str, Offsets], cluster: Cluster, kafka: Kafka, region: str, topic: str
) -> Offsets | None:
    names = {control for name in noted for control, _ in _split(name)}
    known = cluster.topics(names)
    for name, read in noted.items():
        for control, group in _split(name):
            offsets = cluster.group_offsets(group, topic) if control in known else {}
            if not offsets:
                continue
            if cluster.members(group):
                raise CalveError(
                    f"Kafka Connect still writes to the table: group {group} has members",
                    fix="stop the connector, then ask again",
                )
            spans = {p: (read.get(p, 0), end) for p, end in known[control].end.items()}
            if _pending(Reader(known[control], kafka, region), spans):
                raise CalveError(
                    f"Kafka Connect has written files that the table does not have yet (control topic {control})",
                    fix="start the connector, wait for its next commit, stop it, then ask again",
                )
            return offsets
    return None


def _noted(summary: Mapping[str, str]) -> dict[str, Offsets]:
    """Control topic and group -> offsets of the control topic, as a commit of the sink notes them."""
    return {
        name.removeprefix(CONNECT): {int(p): int(offset) for p, offset in json.loads(text).items()}
        for name, text in summary.items()
        if name.startswith(CONNECT)
    }


def _split(name: str) -> Iterator[tuple[str, str]]:
    """Each way to part the names of a topic and a group: both may have dots."""
    parts = name.split(".")
    yield from ((".".join(parts[:n]), ".".join(parts[n:])) for n in range(1, len(parts)))


def _pending(control: Reader, spans: Mapping[int, tuple[int, int]]) -> bool:
    """Whether these offsets of a control topic have an event of written files."""
    return any(
        kind_of_event(value) == PENDING
        for records in control.read(spans)
        for value in records.values
        if value
    )


def kind_of_event(event: bytes) -> str | None:
    """The kind of an event, by its schema, which it begins with (Iceberg's `AvroUtil.encode`)."""
    if not event.startswith(MAGIC):
        return None
    size = int.from_bytes(event[2:4], "big")
    try:
        fields = {each["name"]: each["type"] for each in json.loads(event[4 : 4 + size])["fields"]}
        return str(fields["payload"]["name"]).rpartition(".")[2]
    except (ValueError, LookupError, TypeError):
        return None
