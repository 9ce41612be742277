"""A table after many commits is read, committed to and described as fast as a young one.

The commits are those of rounds, made of files that are staged fifty at a time: a thousand reads of Kafka would take as long again
as all the rest, and are not what a table wears out by.
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from pyspark.sql import functions as F

from calve.log import event
from calve.names import TableName
from calve.table.position import Ledger, Position
from calve.table.protocol import TopicState, next_position
from calve.table.summary import encode
from glue_jobs.iceberg.staging import Staged, stage
from glue_jobs.maintenance.between_rounds import MERGED_AT_ONCE, LoopMaintenance
from glue_jobs.operations.publishing import publish_round
from glue_jobs.process.java import elements
from glue_jobs.table.open_table import Outcome
from glue_jobs.table.opening import Opener
from tests.integration.support.engine import DATABASE, Engine, position_of_open
from tests.integration.support.proofs import assert_proved, proof

ROWS, AT_ONCE = 5, 50
COMMITS = int(os.environ.get("CALVE_COMMITS", "10000"))
"""They take half an hour; a thousand three minutes."""
YOUNG = 250
"""So many commits it takes until there are as many snapshots as there will ever be."""
WINDOW, EVERY = 100, 7
"""What a table is like is the median of many moments: manifests and small files become many and few again all the time."""
MOST, BUSY = 1.3, 2.0
"""How much of everything there may be more, and how much slower it may be on a machine that does other things besides."""


@dataclass
class Worn:
    """A table that gets a commit after the other, and what each cost."""

    engine: Engine
    target: Opener
    position: Position
    upkeep: LoopMaintenance
    commit_s: list[float] = field(default_factory=list)
    upkeep_s: list[float] = field(default_factory=list)
    topic: TopicState | None = None
    moments: list[dict[str, float]] = field(default_factory=list)

    def commit(self, files: Staged, to: int) -> None:
        topic = self.topic = self.topic or self.engine.cluster.state(self.target.config.topic)
        base, round_id = self.position, uuid.uuid4().hex
        self.position = next_position(
            base, topic, {0: to}, round_id=round_id, writer=self.target.services.writer, dead_letters=None
        )
        ledger = Ledger(span=files.rows, consumed=files.rows, applied=files.rows, rows_appended=files.rows)
        start = {topic.key: {0: to - files.rows}}
        summary = encode(position=self.position, topic=topic.key, start=start, ledger=ledger, metrics={})
        began = time.monotonic()
        snapshot, _ = publish_round(self.target.opened.main, files, summary, base=base, round_id=round_id)
        self.commit_s.append(time.monotonic() - began)
        began = time.monotonic()
        self.upkeep.between(Outcome(self.position, {0: to}, snapshot=snapshot), 0.5)
        self.upkeep_s.append(time.monotonic() - began)

    def aged(self) -> dict[str, float]:
        """The medians of the moments since this was asked last."""
        found = {name: statistics.median(each[name] for each in self.moments) for name in self.moments[0]}
        found["commit_ms"] = 1000 * statistics.median(self.commit_s[-WINDOW:])
        self.moments.clear()
        return found

    def look(self) -> None:
        """Take the figures of the table as it is now."""
        table = self.engine.table(self.target.config.topic)
        location = str(table.java.operations().current().metadataFileLocation())
        io, head = table.java.io(), table.java.currentSnapshot()
        now = {
            "metadata_bytes": int(io.newInputFile(location).getLength()),
            "metadata_files": len(list(elements(io.listPrefix(f"{table.java.location()}/metadata/")))),
            "manifests": len(list(elements(head.allManifests(io)))),
            "data_files": table.total("data-files"),
            "snapshots": int(table.java.snapshots().size()),
            "plan_ms": 1000 * statistics.median(self._plan_s() for _ in range(5)),
        }
        self.moments.append(now)

    def _plan_s(self) -> float:
        table = self.engine.table(self.target.config.topic)
        began = time.monotonic()
        for _ in elements(table.java.newScan().planFiles()):
            pass
        return time.monotonic() - began


def staged(engine: Engine, target: Opener, donor: str, first: int) -> Iterator[Staged]:
    """Files of `ROWS` rows each, in their order, from the offset on; as many as are staged at once."""
    last = first + ROWS * AT_ONCE
    rows = engine.rows(donor).where(F.col("_kafka.offset").between(first, last - 1))
    number = ((F.col("_kafka.offset") - first) / ROWS).cast("int")
    made = stage(target.opened.main, rows.repartitionById(AT_ONCE, number), uuid.uuid4().hex)
    assert len(made.files) == AT_ONCE
    for each in sorted(made.files, key=lambda file: str(file.location()).rpartition("/")[2]):
        assert each.recordCount() == ROWS
        yield Staged((each,), ROWS, each.fileSizeInBytes())


@pytest.mark.full
def test_a_table_is_as_fast_after_many_commits_as_after_a_few(engine: Engine) -> None:
    looks = {YOUNG, *range(1_000, COMMITS, 1_000), COMMITS}
    topic = engine.topic(partitions=1)
    engine.produce(topic, COMMITS * ROWS, partition=0)
    donor = engine.target(topic, table=f"{topic}d")
    engine.drain(donor)
    target = engine.target(topic)
    target.open()
    worn = Worn(engine, target, position_of_open(target.opened), LoopMaintenance(target))
    ages: dict[int, dict[str, float]] = {}
    for first in range(0, COMMITS * ROWS, ROWS * AT_ONCE):
        for n, each in enumerate(staged(engine, target, donor.config.name, first), 1):
            worn.commit(each, first + n * ROWS)
            age = len(worn.commit_s)
            if age % EVERY == 0 and any(end - WINDOW < age <= end for end in looks):
                worn.look()
            if age in looks:
                ages[age] = worn.aged()
                event("figures", commits=age, figures=ages[age])
    took = sorted(each for each in worn.upkeep_s if each > 0.05)
    turns = {"turns": len(took), "median_s": statistics.median(took), "longest_s": took[-1]}
    event("upkeep", turns=turns, sizes=sizes(worn))
    young, old = ages[YOUNG], ages[COMMITS]
    worse = {name: old[name] / young[name] for name in young if name != "data_files"}
    assert {name for name in worse if worse[name] > (BUSY if name.endswith("_ms") else MOST)} == set(), worse
    assert old["snapshots"] <= target.config.maintenance.snapshots_at_most
    assert old["data_files"] < 2 * MERGED_AT_ONCE
    assert_proved(proof(engine, topic))


def sizes(worn: Worn) -> list[int]:
    name = TableName(DATABASE, worn.target.config.topic)
    table = worn.engine.lake.load(name)
    assert table is not None
    return sorted(each.file().fileSizeInBytes() for each in elements(table.java.newScan().planFiles()))
