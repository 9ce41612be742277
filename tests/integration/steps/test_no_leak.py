"""Personal data of a masked table is nowhere but in Kafka: planted values are looked for in every byte that is left."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from calve.config.job import Budget, Table
from calve.config.masking_keys import Key, pads
from calve.config.steps import Mask, Rule
from calve.modes.upsert import ChangeData, Deduplicate, Upsert
from calve.names import DEAD_LETTERS_SUFFIX
from calve.requests.redrive import Request, Result
from calve.schema.columns import REASONS
from calve.table.summary import REDRIVE
from cli.spark import JAVA_OPTIONS, spark_environment
from lambdas.export_notify.mail import Manifest, by_link, new_file
from lambdas.links import Link
from tests.integration.support.engine import Engine
from tests.integration.support.records.database import Database
from tests.integration.support.records.planted import Planted, Search
from tests.integration.support.stored import catalogued, export, objects

KEY = Key("k1", 0, sha256(b"no leak").digest())
HASH = Rule("hash")
MASK = Mask(
    fields={
        "name": HASH,
        "email": Rule("partial", "domain"),
        "phone": Rule("partial", 4),
        "card": HASH,
        "account": HASH,
        "photo": HASH,
        "born": Rule("generalise", "year"),
        "seen": Rule("generalise", "month"),
        "salary": Rule("generalise", 10**12),
        "note": Rule("null"),
        "secret": Rule("drop"),
        "contact.email": HASH,
        "contact.phones": Rule("partial", 4),
        "relatives.name": HASH,
        "relatives.born": Rule("generalise", "year"),
        "labels": HASH,
    }
)


def record(title: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": title,
        "fields": [{"name": n, "type": kind} for n, kind in fields.items()],
    }


DAY = {"type": "int", "logicalType": "date"}
PERSON = record(
    "Person",
    id=["null", "long"],
    name="string",
    email="string",
    phone="string",
    card="string",
    account="long",
    photo="bytes",
    born=DAY,
    seen={"type": "long", "logicalType": "timestamp-micros"},
    salary="long",
    note=["null", "string"],
    secret="string",
    contact=record("Contact", email="string", phones={"type": "array", "items": "string"}),
    relatives={"type": "array", "items": record("Relative", name="string", born=DAY)},
    labels={"type": "map", "values": "string"},
    last="string",
)
LAST = "last"
FATES = (
    "truncated",
    "bad_magic",
    "unknown_schema_id",
    "malformed",
    "trailing_bytes",
    "null_key",
    "null_value",
)


UNREADABLE = ("malformed", "trailing_bytes", "unknown_schema_id")
PACKED = ("account", "born", "relatives.born", "salary", "seen")
"""What Avro packs in a way that is not searched for; the records are in letters alone."""


def person(planted: Planted, group: str, number: int | None) -> dict[str, Any]:
    """A record's fields, with values that say where they were planted."""

    def at(path: str) -> str:
        return f"{group}: {path}"

    return {
        "id": number,
        "name": planted.text(at("name")),
        "email": planted.email(at("email")),
        "phone": planted.phone(at("phone")),
        "card": planted.card(at("card")),
        "account": planted.number(at("account")),
        "photo": planted.blob(at("photo")),
        "born": planted.day(at("born")),
        "seen": planted.moment(at("seen")),
        "salary": planted.number(at("salary")),
        "note": planted.text(at("note")),
        "secret": planted.text(at("secret")),
        "contact": {
            "email": planted.email(at("contact.email")),
            "phones": [planted.phone(at("contact.phones")) for _ in range(2)],
        },
        "relatives": [
            {"name": planted.text(at("relatives.name")), "born": planted.day(at("relatives.born"))}
        ],
        "labels": {"a": planted.text(at("labels"))},
        "last": LAST,
    }


@dataclass
class Scene:
    """A topic, the two tables that mask it, and one that does not, of what was produced first."""

    engine: Engine
    folder: Path
    planted: Planted = field(default_factory=Planted)
    began: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    said: list[bytes] = field(default_factory=list)
    others: Iterator[int] = field(default_factory=lambda: count(10**6))

    def __post_init__(self) -> None:
        self.topic = self.engine.topic(schema=json.dumps(PERSON))
        later = PERSON | {"doc": uuid.uuid4().hex}
        self.later = json.dumps(later)
        self.missing = 1 + self.engine.register(f"{self.topic}-probe", json.dumps(later | {"name": "Probe"}))
        listed = [
            {"id": KEY.id, "from": "2020-01-01T00:00:00Z", "key": base64.b64encode(KEY.secret).decode()}
        ]
        self.secret = self.folder / "keys.json"
        self.secret.write_text(json.dumps({"keys": listed}))
        for each in (KEY.secret, KEY.seal, *pads(KEY.secret), *pads(KEY.seal)):
            self.planted.secret(each, "the masking key")
        masked = Table(
            self.topic, self.topic, steps=(MASK,), dead_letter_budget=Budget(records=10**6), freshness_s=1.0
        )
        self.kept = replace(masked, deduplicate=Deduplicate(("id",)))
        self.newest = replace(masked, name=f"{self.topic}_newest", upsert=Upsert(("id",)))
        self.plain = replace(masked, name=f"{self.topic}_plain", steps=())

    @property
    def settings(self) -> Any:
        return self.engine.job(self.kept, self.newest, masking=f"file:{self.secret}")

    def produce(self, group: str, good: int, bad: int) -> None:
        """Good records, and `bad` of every fate."""
        for n in range(good):
            self._send(group, self._encoded(group, n))
        for fate in FATES:
            for _ in range(bad):
                self._send(f"{group}, {fate}", self._value(f"{group}, {fate}", fate))
        self.engine.flush()

    def _value(self, group: str, fate: str) -> bytes | None:
        number = next(self.others)
        match fate:
            case "truncated":
                return b"\0ab"
            case "bad_magic":
                return b"\1" + self.planted.text(f"{group}: value").encode()
            case "unknown_schema_id":
                return b"\0" + self.missing.to_bytes(4, "big") + self._encoded(group, number)[5:]
            case "malformed":
                return self._encoded(group, number)[: -len(LAST)]
            case "trailing_bytes":
                return self._encoded(group, number) + self.planted.text(f"{group}: end").encode()
            case "null_key":
                return self._encoded(group, None)
        return None

    def _encoded(self, group: str, number: int | None) -> bytes:
        return self.engine.encode(self.topic, person(self.planted, group, number))

    def _send(self, group: str, value: bytes | None) -> None:
        key = self.planted.email(f"{group}: _kafka.key").encode()
        header = self.planted.text(f"{group}: _kafka.headers").encode()
        self.engine.producer.produce(self.topic, value, key=key, headers=[("user", header), ("none", None)])

    def run_job(self) -> None:
        """The job as a program: what it prints, its event log and its temporary files are kept."""
        settings, local = self.folder / "job.json", self.folder / "local"
        settings.write_text(self.settings.to_json())
        local.mkdir(exist_ok=True)
        conf = {
            JAVA_OPTIONS: f"-Djava.io.tmpdir={local}",
            "spark.local.dir": str(local),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file:{local}",
        }
        stack = self.engine.stack
        environment = spark_environment(stack, memory="1g", quick=True, conf=conf)
        command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings), "--drain"]
        done = subprocess.run(
            command,
            cwd=stack.root,
            env=environment | {"TMPDIR": str(local)},
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        self.said += [done.stdout, done.stderr]
        logs = [each for each in local.rglob("*") if each.is_file()]
        assert any(b"SparkListenerSQLExecutionStart" in each.read_bytes() for each in logs)
        self.said += [each.read_bytes() for each in logs]

    def redrive(self) -> Request:
        request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00")
        self.engine.table(self.kept.name).set_properties({REDRIVE: request.to_json()})
        return request

    def compact(self) -> None:
        for each in (self.kept, self.newest):
            self.engine.compact(each.name)
            self.engine.compact(each.name + DEAD_LETTERS_SUFFIX)

    def export(self) -> None:
        """All rows of a masked table, as a CSV file."""
        now, day = datetime.now(UTC).replace(microsecond=0), timedelta(days=1)
        outcome = export(self.engine, "people", self.kept.name, now - day, now + day)
        assert (outcome.status, outcome.failure) == ("written", None)
        assert outcome.rows == self.engine.rows(self.kept.name).count()
        [(key, text)] = [each for each in self.objects() if each[0].endswith("manifest.json")]
        self._mail(Manifest.parse(key, text.decode()))

    def _mail(self, manifest: Manifest) -> None:
        link = Link(
            *("link", "key", manifest.export.name, manifest.key, manifest.parts, None, 0, 10**10, 5),
            *(manifest.export.name, str(manifest.window), "UTC", manifest.rows, manifest.complete),
        )
        mail = new_file(manifest, by_link(link, "https://example.com/token"))
        self.said += [mail.subject.encode(), mail.text.encode(), mail.html.encode()]

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """All versions of all objects that were written since the scene began, and what the catalog says."""
        yield from objects(self.engine, lambda each: each["LastModified"] >= self.began)
        yield from catalogued(self.engine)


@pytest.mark.full
@pytest.mark.parametrize(("good", "bad"), [(150, 5), (10_000, 200)])
def test_what_is_masked_is_in_no_byte_that_is_left(
    engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str], good: int, bad: int
) -> None:
    scene = Scene(engine, tmp_path)
    scene.produce("first", good, bad)
    for each in (scene.kept, scene.newest, scene.plain):
        settings = {
            name: getattr(each, name) for name in ("steps", "deduplicate", "upsert", "dead_letter_budget")
        }
        masking = f"file:{scene.secret}"
        engine.drain(engine.target(scene.topic, table=each.name, masking=masking, **settings))
    reasons = {row["reason"] for row in engine.letters(scene.kept.name).select("reason").distinct().collect()}
    assert reasons == set(FATES) <= set(REASONS)

    engine.register(scene.topic, scene.later)
    request = scene.redrive()
    scene.produce("second", good // 9, bad)
    scene.run_job()
    answer = Result.of(engine.table(scene.kept.name).properties, request.id)
    assert answer is not None
    assert (answer.redriven, answer.refused.get("sealed")) == (bad, None)
    scene.compact()
    scene.export()
    scene.said += [each.encode() for each in capfd.readouterr()]

    search = Search(scene.planted)
    leaked: dict[str, set[str]] = {}
    control: set[str] = set()
    for name, data in scene.objects():
        found = search.found(name, data)
        if f"/{scene.plain.name}" in f"/{name}":
            control |= found
        elif found:
            leaked[name] = found
    for number, text in enumerate(scene.said):
        if found := search.found("", text):
            leaked[f"said {number}"] = found
    assert leaked == {}
    packed = {f"first, {fate}: {path}" for fate in UNREADABLE for path in PACKED}
    assert {each for each in scene.planted.places if each.startswith("first")} - packed - control == set()


ROWS = {
    "id": "long",
    "name": ["null", "string"],
    "note": ["null", "string"],
    "tags": ["null", {"type": "array", "items": "string"}],
    "card": "string",
}
OF_DATABASE = Mask(
    fields={"name": HASH, "note": HASH, "tags": Rule("partial", 4), "card": Rule("drop")}, key="keep"
)


@pytest.mark.parametrize(
    "count", [pytest.param(200, marks=pytest.mark.long), pytest.param(2_500, marks=pytest.mark.full)]
)
def test_what_is_masked_of_a_database_is_in_no_byte_that_is_left(
    engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int
) -> None:
    """Four values of each row are planted, in `after` and `before`: of inserts, updates, deletions, and bad events."""
    planted, began = Planted(), datetime.now(UTC).replace(microsecond=0)
    database = Database(engine, full=True, columns=ROWS)
    plain = f"{database.topic}_plain"
    secret = tmp_path / "keys.json"
    listed = [{"id": KEY.id, "from": "2020-01-01T00:00:00Z", "key": base64.b64encode(KEY.secret).decode()}]
    secret.write_text(json.dumps({"keys": listed}))
    settings: dict[str, Any] = {"dead_letter_budget": Budget(records=10**6)}
    targets = [
        database.target(ChangeData(("id",)), steps=(OF_DATABASE,), masking=f"file:{secret}", **settings),
        database.target(ChangeData(("id",)), table=plain, **settings),
    ]

    def person(place: str) -> dict[str, Any]:
        return {
            "name": planted.email(f"{place}: name"),
            "note": planted.text(f"{place}: note"),
            "tags": [planted.phone(f"{place}: tags")],
            "card": planted.card(f"{place}: card"),
        }

    for key in range(count):
        database.insert(key, **person("insert"))
    engine.flush()
    for each in targets:
        engine.drain(each)
    for key in range(0, count, 2):
        database.update(key, name=planted.email("update: name"))
    for key in range(0, count, 5):
        database.delete(key)
    for key in range(count, count + 9):
        database.write("x", key, {"id": key} | person("bad"), {"id": key} | person("bad"))
    engine.flush()
    for each in targets:
        engine.drain(each)
    engine.compact(database.topic)
    assert (
        engine.rows(database.topic).count() == engine.rows(plain).count() == count - len(range(0, count, 5))
    )

    leaked, control = found_in(engine, planted, began, database.topic, plain)
    search, said = Search(planted), capfd.readouterr()
    assert [search.found("", text.encode()) for text in (said.out, said.err)] == [set(), set()]
    assert leaked == {}
    assert control == planted.places


def found_in(
    engine: Engine, planted: Planted, began: datetime, table: str, plain: str
) -> tuple[dict[str, set[str]], set[str]]:
    """What objects and words of the catalog tell of a masked table, by their name, and of a plain one."""
    search, leaked, control = Search(planted), dict[str, set[str]](), set[str]()
    for name, data in (*objects(engine, lambda each: each["LastModified"] >= began), *catalogued(engine)):
        if plain in name:
            control |= search.found(name, data)
        elif table in name and (found := search.found(name, data)):
            leaked[name] = found
    return leaked, control
