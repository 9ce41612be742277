"""Topics whose every record has a known fate, jobs that die at fault points, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from pyiceberg.catalog import Catalog

from calve.config.job import Table
from calve.config.steps import Mask, Rule
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.history import History
from calve.modes.mode import Mode
from calve.modes.upsert import ChangeData, Deduplicate, Upsert
from calve.names import TableName
from calve.requests.redrive import Request
from calve.schema.change_events import UNAVAILABLE
from calve.schema.columns import REDRIVEN
from calve.table.summary import REDRIVE, TAGS
from cli import lake
from cli.dead_letters import Selection
from cli.progress import LineProgress
from cli.spark import spark_environment
from cli.verify.topic import Sources
from cli.verify.verification import verify
from glue_jobs.process import faults
from glue_jobs.rounds.loop import State, TableLoop
from glue_jobs.table.open_table import TableMemory
from glue_jobs.table.opening import Opener
from tests.debezium import envelope, event
from tests.integration.support.engine import CHOICE, DATABASE, TRADE, Engine, trades
from tests.integration.support.records.producing import Raw, produce
from tests.integration.support.running import run

ROOT = Path(__file__).parents[3]
FIRST_ROUND, FLUSH_BYTES = 8, 1_000_000
"""Records that a job in this process takes to be as large as a round allows; it then knows better, and takes all the rest."""
CHILD_FLUSH_BYTES = 88
"""About half a batch."""
CHILD_TIMEOUT_S = 400

FOREIGN = "incompatible_schema"
KINDS = (
    *(None, "bad_magic", None, "unknown_schema_id", None, FOREIGN, None, "null_value"),
    *(None, "malformed", None, "trailing_bytes", None, "truncated", None, None),
)
"""The reasons for which the records of a batch are rejected; None for a good one."""

Place = tuple[int, int]


class Died(BaseException):
    """The job in this process ends here; no handler of the engine's may take notice."""


@dataclass
class Scene:
    """A topic of two partitions and its table.

    `fates`: the reason of every reject, None for every good record, by place. `foreign`: a record of each batch is framed with
    an id of another subject, which the job must look up. `mode`: what the table does with the records of a key; a record without
    a value is a tombstone where they are upserts or versions. Only `keys` knows those. `masked`: keys and a column are hashed,
    and dead letters are sealed.
    """

    engine: Engine
    foreign: bool = False
    mode: Mode | None = None
    masked: bool = False
    topic: str = ""
    fates: dict[Place, str | None] = field(default_factory=dict)
    keys: dict[Place, tuple[bytes, bool]] = field(default_factory=dict)
    ids: dict[Place, int] = field(default_factory=dict)
    notes: int = 0

    def __post_init__(self) -> None:
        self.topic = self.topic or self.engine.topic(partitions=2, schema=self._schema(0))

    @property
    def name(self) -> TableName:
        return TableName(DATABASE, self.topic)

    def produce(self, *, early: bool = False) -> Place:
        """A batch of good and bad records; the place of the first.

        `early` puts one before it whose schema is the subject's next version, which `evolve` will register.
        """
        made = trades(len(KINDS), first=len(self.fates))
        good = [self.engine.encode(self.topic, self._written(n, row)) for n, row in enumerate(made)]
        foreign_id = self._register("other") if self.foreign else 0
        kinds = (kind if self.foreign or kind != FOREIGN else "bad_magic" for kind in KINDS)
        records = [(broken(kind, value, foreign_id), kind) for kind, value in zip(kinds, good, strict=True)]
        if early:
            next_id, payload = 1 + self._register("another"), BytesIO()
            schemaless_writer(
                payload, parse_schema(json.loads(self._schema(self.notes + 1))), self._written(0, made[0])
            )
            records = [(b"\0" + next_id.to_bytes(4, "big") + payload.getvalue(), None), *records]
            made = [made[0], *made]
        raw = [
            Raw(
                value,
                self._key(number) if self.mode or self.masked or self.keys else None,
                partition=number % 2,
            )
            for number, (value, _) in enumerate(records)
        ]
        offsets = produce(self.engine.stack.bootstrap_servers, self.topic, raw)
        places = [(each.partition, offset) for each, offset in zip(raw, offsets, strict=True)]
        self.fates |= {place: kind for place, (_, kind) in zip(places, records, strict=True)}
        self.ids |= {place: row["id"] for place, row in zip(places, made, strict=True)}
        deletes = isinstance(self.mode, Upsert | History)
        self.keys |= {
            place: (
                each.key,
                deletes and (each.value is None or each.value in (good[n] for n in self._deletions)),
            )
            for place, each in zip(places, raw, strict=True)
            if each.key is not None
        }
        self.fates |= {place: None for place, (_, dead) in self.keys.items() if dead}
        return places[0]

    @property
    def table(self) -> Table:
        steps: Any = {"steps": MASKS} if self.masked else {}
        return Table(
            self.topic, self.topic, engine=CHOICE, flush_bytes=CHILD_FLUSH_BYTES, **self._modes, **steps
        )

    def evolve(self) -> None:
        """Register the next version of the schema, with a field more."""
        self.notes += 1
        self.engine.register(self.topic, self._schema(self.notes))

    def loop(self) -> State:
        """A new job drains the topic in this process; the state that it leaves the table in."""
        memory = TableMemory(bytes_per_record=FLUSH_BYTES / FIRST_ROUND)
        return run(TableLoop(self.opener(), threading.Event(), drain=True, memory=memory))

    def opener(self, **settings: Any) -> Opener:
        """The table as a new job opens it."""
        masks: Any = {"steps": MASKS, "masking": secret(self.engine)} if self.masked else {}
        return self.engine.target(self.topic, flush_bytes=FLUSH_BYTES, **self._modes, **masks, **settings)

    def code(self) -> str | None:
        """Why the table was left as it is."""
        table = lake.load(open_catalog(self.engine), self.name)
        return lake.state_of(table).code if table else None

    def work(self) -> None:
        state = self.loop()
        assert state == "running", f"the table was left {state}"

    def finish(self) -> None:
        """A new job drains the topic, and nothing is missing, doubled or left over."""
        self.work()
        self.assert_exact()

    def die(self, point: str, nth: int = 1) -> None:
        """A new job works until it passes the point for the nth time."""
        with dying(point, nth), pytest.raises(Died):
            self.work()

    def assert_exact(self) -> None:
        """Every record is in one place, with its reason; nothing is left over; `verify` proves the values."""
        catalog = open_catalog(self.engine)
        main, letters = lake.load(catalog, self.name), lake.load(catalog, self.name.dead_letters)
        assert main is not None
        assert letters is not None
        held: list[tuple[int, int, str | None]] = []
        if isinstance(self.mode, Aggregate):
            assert self.totals() == self.expected_totals()
        else:
            rows = main.scan(selected_fields=("_kafka",)).to_arrow().to_pylist()
            if self.masked:
                assert {each["_kafka"]["key"][:3] for each in rows} == {b"k1:"}
            held = [(each["_kafka"]["partition"], each["_kafka"]["offset"], None) for each in rows]
        open_ = Selection().within(letters)
        dead = letters.scan(open_, selected_fields=("partition", "offset", "reason")).to_arrow().to_pylist()
        held += [(each["partition"], each["offset"], each["reason"]) for each in dead]
        found, wanted = Counter(held), Counter((*place, fate) for place, fate in self._expected().items())
        assert found == wanted, f"missing {dict(wanted - found)}, too many {dict(found - wanted)}"
        left = {*main.refs(), *letters.refs()} - {"main", *TAGS}
        assert not left, f"left over: {left}"
        job = self.engine.job()
        sources = Sources(catalog, job.kafka, job.registry, self.engine.stack.region)
        if self.masked:
            sources = replace(sources, steps=MASKS, masking=secret(self.engine))
        proof = verify(self.name, sources, LineProgress(lambda _: None))
        assert proof.ok, proof.findings
        unproved = {each.name for each in proof.checks if each.state == "not verifiable"}
        assert unproved <= self._unprovable, proof.checks

    @property
    def _unprovable(self) -> set[str]:
        """What cannot be proved once others have expired the history: the beginning, where newer rows take away the oldest row,
        which says it, totals, and with which steps rounds were read.
        """
        steps = {"earlier schema"} if self.masked else set()
        match self.mode:
            case Upsert():
                return steps | {"beginning"}
            case Aggregate():
                return steps | {"beginning", "groups"}
        return steps

    def totals(self) -> list[tuple[bytes, int, int]]:
        """Key, number of records and sum of their ids, of every row."""
        rows = self.engine.rows(self.topic).select("_kafka_key", "n", "ids").collect()
        return sorted((bytes(key), count, ids) for key, count, ids in rows)

    def expected_totals(self) -> list[tuple[bytes, int, int]]:
        groups: dict[bytes, list[int]] = {}
        for place, fate in self.fates.items():
            if fate is None:
                groups.setdefault(self.keys[place][0], []).append(self.ids[place])
        return sorted((key, len(ids), sum(ids)) for key, ids in groups.items())

    def _expected(self) -> dict[Place, str | None]:
        """The fates of those records that are to be seen: of the good ones with a key only the newest, or the first, of each."""
        if self.mode is None or isinstance(self.mode, History):
            return dict(self.fates)
        if isinstance(self.mode, Aggregate):
            return {place: fate for place, fate in self.fates.items() if fate}
        good = [place for place, fate in self.fates.items() if fate is None]
        if not isinstance(self.mode, Upsert):
            good.reverse()
        row = {self.keys[place][0]: place for place in good}
        return {
            place: fate
            for place, fate in self.fates.items()
            if fate or (row[self.keys[place][0]] == place and not self.keys[place][1])
        }

    @property
    def _modes(self) -> dict[str, Any]:
        names = {
            Upsert: "upsert",
            ChangeData: "change_data",
            History: "history",
            Deduplicate: "deduplicate",
            Aggregate: "aggregate",
        }
        return {names[type(self.mode)]: self.mode} if self.mode else {}

    @property
    def _deletions(self) -> tuple[int, ...]:
        """Records of a batch that delete by what they say."""
        return (10,) if isinstance(self.mode, ChangeData) else ()

    def _written(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        """A row as the topic has it; of a database's changes some lack a value."""
        if not isinstance(self.mode, ChangeData):
            return row
        if number in self._deletions:
            return event("d", before=row)
        return event("u", after=row | {"side": UNAVAILABLE}) if number in (4, 12) else event("c", after=row)

    def _key(self, number: int) -> bytes:
        """Three keys for each partition, so that a batch has each of them several times."""
        return f"{number % 2}-{number // 2 % 3}".encode()

    def assert_nothing_early(self) -> None:
        """No dead letter is to be seen that the table does not stand for yet."""
        catalog = open_catalog(self.engine)
        main, letters = lake.load(catalog, self.name), lake.load(catalog, self.name.dead_letters)
        latest = lake.latest_commit(main) if main else None
        to = {p: o for offsets in latest[1].offsets.values() for p, o in offsets.items()} if latest else {}
        dead = letters.scan(selected_fields=("partition", "offset")).to_arrow().to_pylist() if letters else []
        early = [each for each in dead if each["offset"] >= to.get(each["partition"], 0)]
        assert early == [], f"{early}: dead letters were published before the table named them"

    def _register(self, subject: str) -> int:
        """A schema of another subject, which has nothing in common with the topic's."""
        field = {"name": "id", "type": "string"}
        schema = {"type": "record", "name": "Other", "doc": uuid.uuid4().hex, "fields": [field]}
        return self.engine.register(f"{self.topic}-{subject}", json.dumps(schema))

    def _schema(self, fields_more: int) -> str:
        trade = json.loads(TRADE)
        notes = [
            {"name": f"note{n}", "type": ["null", "string"], "default": None} for n in range(fields_more)
        ]
        fields = [*trade["fields"], *notes]
        if isinstance(self.mode, ChangeData):
            changed = json.loads(envelope({each["name"]: each["type"] for each in fields}))
            return json.dumps(changed | {"doc": uuid.uuid4().hex})
        return json.dumps(trade | {"fields": fields, "doc": uuid.uuid4().hex})


def broken(kind: str | None, value: bytes, foreign_id: int) -> bytes | None:
    """A value that is rejected for this reason."""
    match kind:
        case None:
            return value
        case "null_value":
            return None
        case "bad_magic":
            return b"\x01" + value[1:]
        case "truncated":
            return value[:3]
        case "malformed":
            return value[:-1]
        case "trailing_bytes":
            return value + b"\0"
        case "unknown_schema_id":
            return b"\0\x7f\xff\xff\xff" + value[5:]
        case "incompatible_schema":
            return b"\0" + foreign_id.to_bytes(4, "big") + value[5:]
    raise ValueError(kind)


MASKS = (Mask(fields={"side": Rule("hash")}, masking_key="k1"),)


def secret(engine: Engine) -> str:
    """The reference of the masking keys of all scenes of a stack."""
    file = engine.stack.root / ".calve" / "masking-of-scenes.json"
    if not file.exists():
        key = {"id": "k1", "from": "2020-01-01T00:00:00Z", "key": b64encode(b"k" * 32).decode()}
        file.write_text(json.dumps({"keys": [key]}))
    return f"file:{file}"


def open_catalog(engine: Engine) -> Catalog:
    return lake.open_catalog(engine.job().lake)


@contextmanager
def dying(point: str, nth: int = 1) -> Iterator[None]:
    """Whoever passes the point for the nth time dies there."""
    left = nth

    def pass_by(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Died(point)

    faults.handlers[point] = pass_by
    try:
        yield
    finally:
        faults.handlers.pop(point, None)


def run_job(
    engine: Engine,
    tables: Iterable[Table],
    log: Path,
    *,
    fault: str | None = None,
    until: Callable[[], bool] | None = None,
) -> int:
    """The job's own script in a process of its own, over all the tables; its exit code, negative for a signal.

    It is killed as soon as `until` is true.
    """
    settings = log.with_suffix(".json")
    settings.write_text(engine.job(*tables, masking=secret(engine)).to_json())
    environment = spark_environment(engine.stack, quick=True) | ({"CALVE_FAULT": fault} if fault else {})
    command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings), "--drain"]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while until and process.poll() is None and not until():
                time.sleep(0.05)
            if until:
                process.kill()
            return process.wait(CHILD_TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its JVM, which would notice by itself but later
            process.wait()


def drop_main(scene: Scene) -> None:
    scene.finish()
    drop(scene.engine, scene.name)


def drop_both(scene: Scene) -> None:
    drop_main(scene)
    drop(scene.engine, scene.name.dead_letters)


def drop(engine: Engine, name: TableName) -> None:
    """With its files. Spark's `DROP TABLE PURGE` does not say so to a REST catalog, and S3 Tables refuses it."""
    engine.lake._catalog.dropTable(engine.lake._identifier(name), True)


def forget(scene: Scene) -> None:
    """Compactions and expiry by others: only the tag knows what the table holds."""
    scene.finish()
    for _ in range(2):
        _call(scene.engine, "rewrite_data_files", scene.name, "options => map('rewrite-all', 'true')")
    when = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    _call(scene.engine, "expire_snapshots", scene.name, when)


def roll_back(scene: Scene) -> None:
    """Main stands where it stood before its last two rounds, whose dead letters are left behind."""
    scene.produce()
    scene.finish()
    _roll_back(scene)


def mix_and_roll_back(scene: Scene) -> None:
    """As `roll_back`, where another's compaction has put the dead letters of all rounds into the same files."""
    scene.produce()
    scene.finish()
    _call(
        scene.engine, "rewrite_data_files", scene.name.dead_letters, "options => map('rewrite-all', 'true')"
    )
    _roll_back(scene)


def _roll_back(scene: Scene) -> None:
    main = scene.engine.lake.load(scene.name)
    assert main is not None
    rounds = [each.id for each in main.ancestors() if "calve.round" in each.summary]
    _call(scene.engine, "rollback_to_snapshot", scene.name, f"snapshot_id => {rounds[2]}")


def ask_for_redrive(scene: Scene) -> None:
    """A letter is a row by now, and a person has asked for it."""
    scene.produce(early=True)
    scene.work()
    scene.evolve()
    request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00")
    scene.engine.table(scene.topic).set_properties({REDRIVE: request.to_json()})


def forget_marks(scene: Scene) -> None:
    """The dead-letter table is as releases made it that knew no redrive, and new rejects are waiting."""
    scene.finish()
    scene.engine.spark.sql(f"ALTER TABLE lake.{scene.name.dead_letters} DROP COLUMN {REDRIVEN}")
    scene.produce()


def _call(engine: Engine, procedure: str, table: TableName, arguments: str) -> None:
    engine.spark.sql(f"CALL lake.system.{procedure}(table => '{table}', {arguments})")


OF_REDRIVE = (
    *("redrive.staged", "redrive.marked", "redrive.held", "redrive.committed"),
    *("dead_letters.rewritten", "redrive.completed"),
)
PROVOKED = {
    "dead_letters.evolved": forget_marks,
    **dict.fromkeys(OF_REDRIVE, ask_for_redrive),
    "table.evolved": Scene.evolve,
    "table.created": drop_main,
    "dead_letters.created": drop_both,
    "dead_letters.withdrawn": roll_back,
    "dead_letters.deleted": mix_and_roll_back,
    "position.anchored": forget,
}
"""Points that an ordinary later round does not pass -> what makes it pass them."""
NOT_AT_FIRST = (
    *(
        "table.evolved",
        "position.anchored",
        "dead_letters.withdrawn",
        "dead_letters.deleted",
        "dead_letters.evolved",
    ),
    *OF_REDRIVE,
)
"""Points that the first job of a table does not pass."""
OF_FOREIGN = ("reject.discarded", "reject.restaged")
"""Points that a job passes where a record is framed with an id of another subject."""
OF_SWITCH = ("switch.staged", "switch.marked", "switch.held", "switch.committed")
OF_EMIT = ("emit.written", "emit.noted")
OF_EXPIRY = ("expiry.kept", "expiry.noted", "snapshots.expired")
OF_MAINTENANCE = (
    *(each for each in faults.INNER if each.startswith(("compact.", "retention.", "metadata.", "orphans."))),
    *OF_EXPIRY,
)
OF_FORGET = tuple(each for each in faults.INNER if each.startswith("forget."))
OF_UPKEEP = ("maintenance.settled", "merge.staged", "merge.committed", *OF_EXPIRY)
OF_TRAVEL = (
    *("rewind.completed", "layout.changed", "table.released", "table.adopted"),
    *("backfill.staged", "backfill.committed", "backfill.completed"),
    *("move.committed", "move.completed"),
)
OF_CONFLICT = ("publish.redone",)
OF_INFERENCE = ("table.learnt", "stage.discarded")
OF_S3_TABLES = ("table.bare",)
OTHERS = (
    *OF_CONFLICT,
    *OF_INFERENCE,
    *OF_S3_TABLES,
    *OF_SWITCH,
    *OF_EMIT,
    *OF_FORGET,
    *OF_UPKEEP,
    *OF_TRAVEL,
    *OF_MAINTENANCE,
)
POINTS = tuple(each for each in faults.POINTS if each not in OTHERS)
"""Those of a table that keeps its mode and its layout, has no output topic, forgets nobody, is young, never goes back and is
never moved, released or adopted; test_mode_crash, test_switching, test_time_machine, test_move, test_release, test_adopt,
test_inference, test_emit, test_forget, test_upkeep and test_maintain have the others.
"""
POINTS_OF_UPSERTS = tuple(each for each in POINTS if each not in OF_REDRIVE)
POINTS_OF_TOTALS = tuple(each for each in POINTS_OF_UPSERTS if each != "table.evolved")
UPSERTS = Upsert(("_kafka.key",), deletes=True, bucketed=True)
CHANGES = ChangeData(("_kafka.key",), deletes=True, bucketed=True)
VERSIONS = History(("_kafka.key",), deletes=True, bucketed=True)
FIRSTS = Deduplicate(("_kafka.key",))
TOTALS = Aggregate(("_kafka.key",), (Measure("n", "count(*)"), Measure("ids", "sum(id)")))
ONCE = (*OF_FOREIGN, "state.written", "idle.tagged", "idle.noted", *PROVOKED)
"""Points that one job passes once at most for a batch."""
