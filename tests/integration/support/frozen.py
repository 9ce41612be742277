"""A table that an earlier release has written, as files: how it is stored in tests/releases, and brought to life again."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from pyiceberg.exceptions import NoSuchTableError

from calve.config.job import Budget, Source
from calve.modes.upsert import Upsert
from calve.names import TableName
from cli.lake import open_catalog
from tests.integration.support.engine import DATABASE, Engine, until
from tests.integration.support.records.producing import Raw
from tests.integration.support.records.producing import produce as send

RELEASES = Path(__file__).parents[2] / "releases"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
SOURCE = Source(format="json", prefix="none", schema=json.dumps(SCHEMA))
SETTINGS: dict[str, dict[str, Any]] = {
    kind: {"value": SOURCE, "dead_letter_budget": Budget(records=1000)} | more
    for kind, more in {"append": {}, "upsert": {"upsert": Upsert(("id",), bucketed=True)}}.items()
}
"""The kinds of tables that are frozen."""
START_MS = 1_763_877_600_000


def records(first: int, *, good: int, bad: int) -> list[Raw]:
    """Good records, and records that are no JSON, in turn in two partitions, each with a time of its own."""
    values = [json.dumps({"id": n, "name": f"name {n}"}).encode() for n in range(first, first + good)]
    values += [f"{{ no JSON {n}".encode() for n in range(bad)]
    return [
        Raw(value, key=f"k{first + n}".encode(), partition=n % 2, timestamp_ms=START_MS + 1000 * (first + n))
        for n, value in enumerate(values)
    ]


@dataclass(frozen=True, slots=True)
class Frozen:
    """A table in a release's folder: `KIND.json` says what it is, `KIND/` has its files and those of its dead letters."""

    folder: Path
    kind: str

    @property
    def name(self) -> str:
        """The topic and the table."""
        return f"frozen_{self.folder.name.replace('.', '_')}" + (
            "" if self.kind == "append" else f"_{self.kind}"
        )

    @property
    def settings(self) -> dict[str, Any]:
        return SETTINGS[self.kind]

    @property
    def lake(self) -> Path:
        return self.folder / self.kind

    @property
    def note(self) -> Path:
        return self.folder / f"{self.kind}.json"

    def freeze(self, engine: Engine, produced: list[Raw]) -> None:
        """Store the files that table and dead letters consist of."""
        key = engine.key(self.name)
        assert key is not None
        s3, catalog = client(engine), open_catalog(engine.job().lake)
        metadata = {}
        for name in (TableName(DATABASE, self.name), TableName(DATABASE, self.name).dead_letters):
            table = catalog.load_table((name.database, name.table))
            metadata[name.table] = table.metadata_location
            for path in reachable(table):
                file = self.lake / path.removeprefix(f"s3://{engine.stack.bucket}/")
                file.parent.mkdir(parents=True, exist_ok=True)
                body = s3.get_object(Bucket=engine.stack.bucket, Key=str(file.relative_to(self.lake)))
                file.write_bytes(body["Body"].read())
        note = {
            "cluster_id": key.cluster_id,
            "topic_id": key.topic_id,
            "metadata": metadata,
            "records": [
                [each.partition, each.timestamp_ms, _text(each.key), _text(each.value)] for each in produced
            ],
        }
        self.note.write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")

    def thaw(self, engine: Engine) -> None:
        """Make the topic anew, record by record, and the tables as if that topic were the one that they were made from."""
        note = json.loads(self.note.read_text(encoding="utf-8"))
        if engine.key(self.name):
            engine.delete(self.name)
            until(lambda: engine.key(self.name) is None)
        engine.create(self.name)
        until(lambda: engine.key(self.name))
        key = engine.key(self.name)
        assert key is not None
        send(engine.stack.bootstrap_servers, self.name, [_raw(*each) for each in note["records"]])
        s3, catalog = client(engine), open_catalog(engine.job().lake)
        for file in (each for each in self.lake.rglob("*") if each.is_file()):
            body = file.read_bytes()
            for before, now in ((note["cluster_id"], key.cluster_id), (note["topic_id"], key.topic_id)):
                assert len(before) == len(now)
                body = body.replace(before.encode(), now.encode())
            s3.put_object(Bucket=engine.stack.bucket, Key=str(file.relative_to(self.lake)), Body=body)
        for name, location in note["metadata"].items():
            with suppress(NoSuchTableError):
                catalog.drop_table((DATABASE, name))
            catalog.register_table((DATABASE, name), location)


def client(engine: Engine) -> Any:
    return boto3.client("s3", endpoint_url=engine.stack.aws_endpoint, region_name=engine.stack.region)


def reachable(table: Any) -> set[str]:
    """The files of a table that its metadata names, but for older metadata."""
    found = {table.metadata_location}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return found


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _raw(partition: int, timestamp_ms: int, key: str, value: str) -> Raw:
    return Raw(base64.b64decode(value), base64.b64decode(key), partition, (), timestamp_ms)
