"""Each reader that runs here sees the rows of each mode and format version, after each of random commits (docs/query.md)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
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
from tests.integration.modes.test_combinations import ROW, Scene
from tests.integration.support.engine import Engine
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

USUAL = {("`upsert`", 2), ("`change_data`", 3)}
"""Cells that `.ci/run` fills; the others need `make test-full`."""


Servers = Callable[[str], Callable[[TableName], Rows]]


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
        self.engine, self.scene = engine, Scene(engine, mode)
        self.table: Table = replace(self.scene.table(mode, "", "env:NONE"), format_version=version)
        self.fields = 0

    def round(self) -> None:
        self.scene.produce()
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
        pytest.param(mode, version, 6 if (mode, version) in USUAL else 10, id=f"{mode} in format {version}",
                     marks=pytest.mark.long if (mode, version) in USUAL else pytest.mark.full)
        for mode in MODES
        for version in (2, 3)
    ],
)  # fmt: skip
def test_readers_agree(engine: Engine, servers: Servers, mode: str, version: int, commits: int) -> None:
    world, dice = World(engine, mode, version), random.Random(f"{mode}{version}")
    acts: list[Callable[[], None]] = [
        world.round,
        world.round,
        world.evolve,
        world.maintain,
        lambda: engine.compact(world.table.name),
        world.roll_back,
    ]
    world.round()
    lake, name = engine.job().lake, engine.job().table_name(world.table)
    readers: dict[str, Callable[[TableName], Rows]] = {
        known: partial(read, lake) for known, read in OF_ICEBERG.items()
    }
    readers |= {known: servers(known) for known in SERVERS if known != TRINO or (mode, version) not in USUAL}
    failed = set()
    for number in range(commits):
        act = acts[number] if number < len(acts) and commits > len(acts) else dice.choice(acts)
        act()
        truth = engine.rows(world.table.name).toArrow()
        for known, read in readers.items():
            fault = FAULTS.get(known, Fault())
            if fault.fails(loaded(lake, name)):
                assert fault.met(mode, version), (known, act)
                with pytest.raises(Exception, match=fault.error):
                    read(name)
                failed.add(known)
            else:
                assert read(name) == rows_of(truth, fault.as_read), (known, act)
        catch_up(engine.stack, lake, name)
        for known, by_log in OF_DELTA.items():
            found = by_log(lake, engine.table(world.table.name).java.location())
            assert found == rows_of(truth), (f"{known}, Delta", act)
    named = {known for known in readers if known in FAULTS and FAULTS[known].verdict == "fails"}
    assert failed >= {known for known in named if FAULTS[known].met(mode, version)}
