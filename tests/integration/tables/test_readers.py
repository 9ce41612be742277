"""Each reader that runs here sees the rows of each mode and format version, during 200 random commits (docs/query.md)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest

from calve.config.job import Table
from calve.names import TableName
from cli.embedded.stack import Stack
from glue_jobs.ingest import openers_of
from glue_jobs.maintenance.tasks import Work
from tests.combinations import MODES
from tests.debezium import around
from tests.integration.decode.test_types import EMPTY, ENTRIES, FLAT, FULL, NESTED, as_written
from tests.integration.modes.test_combinations import ROW, Scene
from tests.integration.support.engine import DATABASE, Engine
from tests.integration.support.readers import (
    FAULTS,
    OF_DELTA,
    OF_ICEBERG,
    SERVERS,
    TRINO,
    Fault,
    Rows,
    catch_up,
    loaded,
    rows_of,
)
from tests.integration.support.records.avro_records import nullable, record

USUAL = (("`upsert`", 2), ("`change_data`", 3))
"""Cells that `.ci/run` fills, too: with fewer commits, and without Trino, a large download."""

Read = Callable[[TableName], Rows]
Servers = Callable[[str], Read]


@pytest.fixture(scope="module")
def servers(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Readers that are servers, each started once a test asks for it."""
    with ExitStack() as running:
        yield cache(
            lambda name: running.enter_context(SERVERS[name](stack, tmp_path_factory.mktemp("server")))
        )


class World:
    """A table of a mode, and what happens to it."""

    def __init__(self, engine: Engine, mode: str, version: int) -> None:
        self.engine, self.scene, self.dice = engine, Scene(engine, mode), random.Random(f"{mode}{version}")
        self.table: Table = replace(self.scene.table(mode, "", "env:NONE"), format_version=version)
        self.fields = 0

    def round(self) -> None:
        self.scene.produce(bad=self.dice.random() < 0.1)
        [target] = openers_of(self.engine.job(self.table), self.engine.lake, self.engine.cluster)
        self.engine.drain(target)

    def evolve(self) -> None:
        """A wider number inside a struct, and a field more."""
        self.fields += 1
        found: dict[str, Any] = json.loads(json.dumps(ROW))
        found["fields"][-1]["type"]["fields"][0]["type"] = "long"
        more = [
            {"name": f"f{each}", "type": ["null", "string"], "default": None} for each in range(self.fields)
        ]
        found["fields"] += more
        self.engine.register(self.scene.topic, json.dumps(around(found) if self.scene.changes else found))
        self.round()

    def roll_back(self) -> None:
        found = [each.id for each in self.engine.table(self.table.name).ancestors()]
        self.engine.rollback(self.table.name, found[min(1, len(found) - 1)])

    def maintain(self) -> None:
        Work(self.table, self.engine.table(self.table.name), None).run("deletes", lambda: False)


@pytest.mark.parametrize(
    ("mode", "version", "commits"),
    [
        *(pytest.param(mode, version, 6, id=f"{mode} in format {version}, six commits", marks=pytest.mark.long)
          for mode, version in USUAL),
        *(pytest.param(mode, version, 200, id=f"{mode} in format {version}", marks=pytest.mark.full)
          for mode in MODES
          for version in (2, 3)),
    ],
)  # fmt: skip
def test_readers_agree(engine: Engine, servers: Servers, mode: str, version: int, commits: int) -> None:
    world = World(engine, mode, version)
    rare: list[Callable[[], object]] = [
        world.evolve,
        world.maintain,
        partial(engine.compact, world.table.name),
        world.roll_back,
    ]
    full = commits > 100
    acts: list[Callable[[], object]] = [world.round, *(rare if full else [])]
    weights = {True: [8, 1, 1, 1, 1], False: [2, 1, 1, 1, 1]}[full]
    acts += world.dice.choices([world.round, *rare], weights, k=commits - len(acts))
    reads = read_by(engine, servers, SERVERS.keys() - (set() if full else {TRINO}))
    world.round()
    failed = set[str]()
    for number, act in enumerate(acts, 1):
        act()
        if number <= 10 or number % 50 == 0:
            failed |= compare(engine, reads, engine.job().table_name(world.table), (number, act))
    met = {known for known, fault in FAULTS.items() if fault.met(mode, version)}
    assert failed <= met
    assert {known for known in met & reads.keys() if FAULTS[known].verdict == "fails"} <= failed


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_readers_agree_on_values_of_every_type(engine: Engine, servers: Servers, version: int) -> None:
    """The extremes of each type, and nested ones."""
    maps = record("Maps", **{name: kind for name, (kind, _) in ENTRIES.items()})
    flat = {name: nullable(kind) for name, (kind, _) in FLAT.items()}
    schema = record("Types", **flat, person=nullable(NESTED), maps=nullable(maps))
    topic = engine.topic(partitions=1, schema=json.dumps(schema))
    entries = {
        name: [{"key": key, "value": value} for key, value in pairs] for name, (_, pairs) in ENTRIES.items()
    }
    entries |= {"flag": [{"key": True, "value": [{"key": 2**40, "value": 1}]}]}
    nested: list[dict[str, Any]] = [
        {"person": FULL, "maps": entries},
        {"person": EMPTY, "maps": {name: [] for name in entries}},
        {"person": None, "maps": None},
    ]
    for turn in range(1 + max(len(values) for _, values in FLAT.values())):
        row = {name: values[turn] if turn < len(values) else None for name, (_, values) in FLAT.items()}
        sent = {name: as_written(name, value) for name, value in row.items()}
        engine.produce(topic, [sent | nested[turn % len(nested)]])
    engine.drain(engine.target(topic, format_version=version))
    failed = compare(engine, read_by(engine, servers, SERVERS.keys()), TableName(DATABASE, topic), "a round")
    assert failed == set()


def read_by(engine: Engine, servers: Servers, names: Iterable[str]) -> Mapping[str, Read]:
    """The readers of Iceberg's metadata: the libraries, and these servers."""
    libraries = {known: partial(read, engine.job().lake) for known, read in OF_ICEBERG.items()}
    return libraries | {known: servers(known) for known in names}


def compare(engine: Engine, reads: Mapping[str, Read], name: TableName, after: object) -> set[str]:
    """Compare each reader with Spark; the readers that fail as their faults say. after: for messages."""
    lake, truth = engine.job().lake, engine.rows(name.table).toArrow()
    table, failed = loaded(lake, name), set()
    for known, read in reads.items():
        fault = FAULTS.get(known, Fault())
        if fault.fails(table):
            with pytest.raises(Exception, match=fault.error):
                read(name)
            failed.add(known)
        else:
            assert read(name) == rows_of(truth, fault.as_read), (known, after)
    catch_up(engine.stack, lake, name)
    for known, by_log in OF_DELTA.items():
        assert by_log(lake, table.location()) == rows_of(truth), (f"{known}, Delta", after)
    return failed
