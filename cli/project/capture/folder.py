"""A capture: the folder with the records of one topic, their schemas, and the answers of the registry.

capture.json     where the records come from, and the fate of each
records.jsonl    a record a line, in the order of partitions and offsets
registry.json    what the registry answered
schemas/         the text of each schema, by its id
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from calve.config import job
from calve.errors import ConfigError
from calve.registry.registry import Registry
from calve.schema.wire import CONFLUENT, GLUE, Schema, Wire

FORMAT = 1
ABOUT, RECORDS, REGISTRY, SCHEMAS = "capture.json", "records.jsonl", "registry.json", "schemas"
_ENDINGS = {"AVRO": "avsc", "PROTOBUF": "proto", "JSON": "json"}
_WIRES = {"confluent": CONFLUENT, "glue": GLUE}


@dataclass(frozen=True, slots=True)
class Record:
    """A record. refused: a word of `calve.schema.columns.UNDELIVERED`."""

    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    refused: str | None = None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Record:
        """row: of `glue_jobs.kafka.source.SCHEMA`."""
        headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
        place = row["partition"], row["offset"], row["calve:millis"], row["timestampType"]
        return cls(*place, row["key"], row["value"], headers, row["calve:refused"])

    @property
    def line(self) -> str:
        found = asdict(self) | {
            "key": _shown(self.key),
            "value": _shown(self.value),
            "headers": [{"key": name, "value": _shown(data)} for name, data in self.headers],
        }
        return json.dumps(found, ensure_ascii=False)

    @classmethod
    def of_line(cls, line: str) -> Record:
        found = json.loads(line)
        headers = tuple((each["key"], _read(each["value"])) for each in found["headers"])
        return cls(**found | {"key": _read(found["key"]), "value": _read(found["value"]), "headers": headers})


def _shown(data: bytes | None) -> dict[str, str] | None:
    """`{"text": ...}`, or `{"base64": ...}` of bytes that are no text."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and all(each.isprintable() or each.isspace() for each in text):
        return {"text": text}
    return {"base64": base64.b64encode(data).decode()}


def _read(shown: Mapping[str, str] | None) -> bytes | None:
    if shown is None:
        return None
    return shown["text"].encode() if "text" in shown else base64.b64decode(shown["base64"])


def arrow(records: Sequence[Record], schema: pa.Schema) -> pa.Table:
    """The records as `glue_jobs.kafka.source.fetch_few` returns them."""
    rows = [
        {
            "key": each.key,
            "value": each.value,
            "partition": each.partition,
            "offset": each.offset,
            "calve:millis": each.timestamp_ms,
            "timestampType": each.timestamp_type,
            "headers": [{"key": name, "value": data} for name, data in each.headers] or None,
            "calve:refused": each.refused,
        }
        for each in records
    ]
    return pa.Table.from_pylist(rows, schema)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a registry answered. wire: `confluent` or `glue`."""

    wire: str = "confluent"
    schemas: dict[int, Schema | None] = field(default_factory=dict)
    versions: dict[str, list[int]] = field(default_factory=dict)
    subjects: list[str] = field(default_factory=list)
    subjects_of: dict[int, list[str]] = field(default_factory=dict)
    real_names: dict[str, str] = field(default_factory=dict)
    default_subjects: dict[str, str] = field(default_factory=dict)


class Recorder:
    """A registry that notes each answer of another one."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.answers = Answers("glue" if registry.wire is GLUE else "confluent")

    @property
    def wire(self) -> Wire:
        return self._registry.wire

    def default_subject(self, topic: str, part: job.PartName = "value") -> str:
        found = self._registry.default_subject(topic, part)
        self.answers.default_subjects[f"{part} {topic}"] = found
        return found

    def by_id(self, schema_id: int) -> Schema | None:
        found = self.answers.schemas[schema_id] = self._registry.by_id(schema_id)
        return found

    def versions(self, subject: str) -> list[Schema]:
        found = self._registry.versions(subject)
        self.answers.schemas.update((each.id, each) for each in found)
        self.answers.versions[subject] = [each.id for each in found]
        return found

    def subjects(self) -> list[str]:
        found = self._registry.subjects()
        self.answers.subjects[:] = found
        return found

    def subjects_of(self, schema_id: int) -> list[str]:
        found = self.answers.subjects_of[schema_id] = self._registry.subjects_of(schema_id)
        return found

    def real_name(self, subject: str) -> str:
        found = self.answers.real_names[subject] = self._registry.real_name(subject)
        return found

    def forget(self, subject: str) -> None:
        self._registry.forget(subject)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A registry that gives the noted answers."""

    answers: Answers

    @property
    def wire(self) -> Wire:
        return _WIRES[self.answers.wire]

    def default_subject(self, topic: str, part: job.PartName = "value") -> str:
        return self.answers.default_subjects.get(f"{part} {topic}", f"{topic}-{part}")

    def by_id(self, schema_id: int) -> Schema | None:
        return self.answers.schemas.get(schema_id)

    def versions(self, subject: str) -> list[Schema]:
        if subject not in self.answers.versions:
            raise ConfigError(
                f"the capture does not hold the subject {subject}",
                fix="capture the records again with this calve.yaml",
            )
        return [found for each in self.answers.versions[subject] if (found := self.answers.schemas[each])]

    def subjects(self) -> list[str]:
        return list(self.answers.subjects)

    def subjects_of(self, schema_id: int) -> list[str]:
        return list(self.answers.subjects_of.get(schema_id, ()))

    def real_name(self, subject: str) -> str:
        return self.answers.real_names.get(subject, subject)

    def forget(self, subject: str) -> None:
        """The answers stay."""


@dataclass(frozen=True, slots=True)
class Capture:
    """properties: those of the table that decide on its columns. fates: in the order of the records."""

    table: str
    topic: str
    captured_at: str
    kept: tuple[str, ...]
    properties: dict[str, str]
    fates: tuple[str, ...]
    records: tuple[Record, ...]
    answers: Answers

    @property
    def expected(self) -> dict[tuple[int, int], str]:
        """The fate of each record, by its place."""
        places = ((each.partition, each.offset) for each in self.records)
        return dict(zip(places, self.fates, strict=True))

    def write(self, folder: Path) -> None:
        """Into a folder that does not exist."""
        folder.mkdir(parents=True)
        about = {
            "format": FORMAT,
            "table": self.table,
            "topic": self.topic,
            "captured_at": self.captured_at,
            "kept": list(self.kept),
            "properties": self.properties,
            "fates": list(self.fates),
        }
        _write(folder / ABOUT, about)
        lines = (each.line + "\n" for each in self.records)
        (folder / RECORDS).write_text("".join(lines), encoding="utf-8")
        found = asdict(self.answers) | {"schemas": {}}
        for number, schema in self.answers.schemas.items():
            found["schemas"][number] = schema and asdict(schema) | {"text": _kept(schema, number, folder)}
        _write(folder / REGISTRY, found)

    @classmethod
    def read(cls, folder: Path) -> Capture:
        """Raises ConfigError: the folder holds no capture, or that of another release."""
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            if about.pop("format") != FORMAT:
                raise ConfigError(
                    f"{folder} is a capture of another release of calve", fix="capture the records again"
                )
            lines = (folder / RECORDS).read_text(encoding="utf-8").split("\n")
            found = json.loads((folder / REGISTRY).read_text(encoding="utf-8"))
            answers = Answers(
                **found
                | {
                    "schemas": dict(_schemas(found["schemas"], folder)),
                    "subjects_of": {int(number): each for number, each in found["subjects_of"].items()},
                }
            )
            records = tuple(Record.of_line(each) for each in lines if each)
            about |= {name: tuple(about[name]) for name in ("kept", "fates")}
            return cls(**about, records=records, answers=answers)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"{folder} holds no capture that can be read: {error}", fix="make one: calve capture TABLE"
            ) from None


def _kept(schema: Schema, number: int, folder: Path) -> str:
    """Write the text of a schema. Its path in the folder."""
    path = f"{SCHEMAS}/{number}.{_ENDINGS.get(schema.type, 'txt')}"
    (folder / SCHEMAS).mkdir(exist_ok=True)
    (folder / path).write_text(schema.text, encoding="utf-8", newline="")
    return path


def _schemas(found: Mapping[str, Any], folder: Path) -> Iterator[tuple[int, Schema | None]]:
    for number, each in found.items():
        text = each and (folder / each["text"]).read_bytes().decode()
        yield int(number), each and Schema(**each | {"text": text})


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
