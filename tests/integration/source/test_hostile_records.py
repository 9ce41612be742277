"""Records that nobody means to send stop no job: each is a row or a dead letter, the tables beside them go on, and all is proved.

All tables of a mode are kept by one job, each case's by every engine that can: what kills a job kills all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from kafka.errors import for_code
from kafka.protocol.producer import ProduceRequest

from calve.config.job import EngineChoice, Job, Kafka, Table
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import Deduplicate
from cli.console import Console
from cli.run import jobs as command
from glue_jobs.ingest import run
from glue_jobs.kafka.client import Client, client_of, drop_client, settings_of
from glue_jobs.kafka.connection import Connection
from tests.hostile import CASES, Case, Mode, Shape, good
from tests.integration.support.engine import Engine, until
from tests.integration.support.proofs import proof
from tests.integration.support.records.database import BY_RECORD_KEY as CHANGES
from tests.integration.support.records.keyed import BY_RECORD_KEY

MOST_MEMORY = 7 << 29
"""Bytes of all processes of a job with a heap of 1 GiB on two cores, also while kernels are compiled; a bomb has 1.2 GiB more."""
GOOD = 3
"""Records before a case's own, and as many behind them."""
MODES: Mapping[Mode, Mapping[str, Any]] = {
    "append": {},
    "upsert": {"upsert": BY_RECORD_KEY},
    "deduplicate": {"deduplicate": Deduplicate(("id",))},
    "aggregate": {"aggregate": Aggregate(("name",), (Measure("records", "count(*)"),))},
    "change_data": {"change_data": CHANGES},
}


@dataclass(frozen=True)
class Kept:
    """A table of a case. records: how many its topic has."""

    case: Case
    table: Table
    records: int


@pytest.fixture
def client(engine: Engine) -> Iterator[Client]:
    settings = settings_of(Connection(Kafka(engine.stack.bootstrap_servers)))
    yield client_of(settings)
    drop_client(settings)


def send(client: Client, topic: str, batch: bytes) -> None:
    """A batch as it is; a broker looks at it, and may refuse it."""

    async def ask() -> Any:
        _, found = await client.described(topic)
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=20_000,
            topic_data=[data(name=topic, topic_id=found.topic_id, partition_data=[part])],
        )
        return await client.send(found.partitions[0].leader_id, request)

    [answer] = client.run(ask).responses[0].partition_responses
    if answer.error_code:
        raise for_code(answer.error_code)(answer.error_message)


def topic_of(engine: Engine, client: Client, case: Case, shape: Shape) -> str:
    """A topic with the case's records between good ones."""
    topic = f"t{os.urandom(6).hex()}"
    engine.create(topic, partitions=1, config=case.config)
    until(lambda: engine.key(topic))
    for each in (good(shape, 0, GOOD), *case.batches(shape, GOOD), good(shape, 1_000_000, GOOD)):
        send(client, topic, each)
    return topic


def kept(engine: Engine, client: Client, mode: Mode, cases: Sequence[Case]) -> list[Kept]:
    engines: tuple[EngineChoice, ...] = ("rows", "columnar") if mode == "append" else ("auto",)
    found = []
    for case in cases:
        shape = Shape(case.format, changes=mode == "change_data")
        topic = topic_of(engine, client, case, shape)
        [records] = engine.cluster.state(topic).end.values()
        for each in engines if case.format == "avro" else ("auto",):
            table = Table(f"{topic}_{each}", topic, value=shape.source, engine=each, **MODES[mode])
            found.append(Kept(case, table, records))
    return found


def beside(engine: Engine, mode: Mode, client: Client) -> Kept:
    """A table whose records are all good."""
    case, shape = Case("beside", lambda *_: iter(())), Shape("avro", changes=mode == "change_data")
    topic = topic_of(engine, client, case, shape)
    return Kept(case, Table(f"{topic}_beside", topic, value=shape.source, **MODES[mode]), 2 * GOOD)


def fates(engine: Engine, each: Kept) -> dict[int, str]:
    """Offset -> `row` or the reason of the dead letter; of totals only how many are rows is known."""
    name, found = each.table.name, []
    if each.table.aggregate:
        [(rows,)] = engine.rows(name).selectExpr("coalesce(sum(records), 0)").collect()
        found += [(-1 - n, "row") for n in range(rows)]
    else:
        found += [(one.offset, "row") for one in engine.rows(name).select("_kafka.offset").collect()]
    target = engine.target(each.table.topic, table=name)
    if engine.lake.load(target.name.dead_letters) is not None:
        found += [tuple(one) for one in engine.letters(name).select("offset", "reason").collect()]
    assert len(dict(found)) == len(found), f"an offset of {each.case.name} has two fates"
    return dict(found)


def problems(engine: Engine, each: Kept) -> list[str]:
    """What is wrong with a table after its job has ended."""
    found, last = [], each.records - GOOD
    fate = fates(engine, each)
    if each.table.aggregate:
        if len(fate) != each.records:
            found.append(f"{len(fate)} of {each.records} records have a fate")
    elif sorted(fate) != list(range(each.records)):
        found.append(f"offsets without a fate: {sorted(set(range(each.records)) - set(fate))[:10]}")
    elif {fate[n] for n in (*range(GOOD), *range(last, each.records))} != {"row"}:
        found.append("a good record is no row")
    letters = [reason for offset, reason in sorted(fate.items()) if reason != "row"]
    if letters != list(each.case.letters):
        found.append(f"dead letters {letters}")
    proved = proof(engine, each.table.name, value=each.table.value)
    if proved.findings or not proved.complete:
        unproved = [each for each in proved.checks if each.state != "proved"]
        found.append(f"verify: {proved.findings} {unproved} {proved.fault}")
    return [f"{each.case.name}, {each.table.engine}: {one}" for one in found]


def standing(engine: Engine, tables: Sequence[Kept]) -> dict[str, Any]:
    """Where main of each table is, and how many dead letters there are."""
    return {
        each.table.name: (
            next(engine.table(each.table.name).ancestors()).id,
            len(fates(engine, each)),
        )
        for each in tables
    }


def survives(engine: Engine, tables: Sequence[Kept], drain: Callable[[Job], dict[str, str]]) -> None:
    job = engine.job(*(each.table for each in tables))
    assert set(drain(job).values()) == {"running"}
    found = [problem for each in tables for problem in problems(engine, each)]
    assert found == []
    before = standing(engine, tables)
    assert set(drain(job).values()) == {"running"}
    assert standing(engine, tables) == before


class Memory(threading.Thread):
    """The greatest share of memory that the processes of a job have together, looked at while they run."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over, self.peak = threading.Event(), 0

    def run(self) -> None:
        while not self.over.wait(0.3):
            self.peak = max(self.peak, sum(map(_share, _of_jobs())))


def _of_jobs() -> Iterator[Path]:
    """Processes of a job that this one has started, and what they have started."""
    parents, mine = {}, {os.getpid()}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    jobs: set[int] = set()
    for _ in parents:
        found = {pid for pid, parent in parents.items() if parent in mine | jobs} - mine - jobs
        if not found:
            break
        for pid in found:
            with suppress(OSError):
                started = (
                    parents[pid] in jobs or b"glue_jobs.ingest" in Path(f"/proc/{pid}/cmdline").read_bytes()
                )
                (jobs if started else mine).add(pid)
    return (Path(f"/proc/{pid}") for pid in jobs)


def _share(process: Path) -> int:
    """Bytes in memory; what processes have in common counts once in all."""
    with suppress(OSError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def here(job: Job) -> dict[str, str]:
    return dict(run(job, drain=True, stop=threading.Event()))


def in_child(job: Job) -> dict[str, str]:
    """In processes of their own, in whose memory no record of a gigabyte has room."""
    memory = Memory()
    memory.start()
    code = command.run("ingest", job, ["--drain"], Console(), memory="1g", conf={})
    memory.over.set()
    assert 0 < memory.peak < MOST_MEMORY, f"{memory.peak >> 20} MiB"
    return {each.name: "running" if code == 0 else f"exit code {code}" for each in job.tables}


@pytest.mark.long
def test_hostile_records_stop_nothing(engine: Engine, client: Client) -> None:
    """The short version: one job of tables that append, by both engines, and of tables of keys."""
    cases = [each for each in CASES if each.short]
    healthy = beside(engine, "append", client)
    keyed = kept(engine, client, "upsert", [each for each in cases if each.format == "avro"])
    survives(engine, [*kept(engine, client, "append", cases), *keyed, healthy], here)


@pytest.mark.full
@pytest.mark.parametrize("mode", get_args(Mode))
def test_hostile_records_stop_no_mode_and_take_no_memory(engine: Engine, client: Client, mode: Mode) -> None:
    cases = [each for each in CASES if mode != "change_data" or each.format != "protobuf"]
    survives(engine, [*kept(engine, client, mode, cases), beside(engine, mode, client)], in_child)
