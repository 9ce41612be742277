"""How old records are when they can be read: produced at a fixed rate, looked for in the table's newest commit."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from confluent_kafka import Producer
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from bench import topics
from bench.metering import Spent
from bench.scene import Follower, Scene, System
from bench.sizes import Sizes
from bench.systems.spark import engines
from bench.workloads.trades import TRADES
from bench.workloads.workload import blocks
from calve.config.job import Lake
from cli.console import Console
from cli.embedded import aws
from cli.kafka import client_properties
from cli.lake import open_catalog
from cli.look.query.answer import connect, literal

RATE = 2_000
TICK_S = 0.02
LOOK_S = 0.05
PATIENCE_S = 60
WARM_S = 10
ROUND_S, OUR_ROUNDS_S = 1.0, (1.0, 0.2)
FOLLOWERS = ("spark_streaming", "connect")


def freshness(
    scene: Scene, console: Console, systems: Sequence[System], sizes: Sizes
) -> Iterator[dict[str, Any]]:
    if not sizes.seconds:
        return
    ours = engines(systems, all_of_them=sizes.name == "full")
    others = [each for each in systems if isinstance(each, Follower) and each.name in FOLLOWERS]
    chosen: list[tuple[Follower, float]] = [(each, round_s) for each in ours for round_s in OUR_ROUNDS_S]
    chosen += [(each, ROUND_S) for each in others]
    for system, round_s in chosen:
        with console.progress().task(f"freshness: {system.title}, {round_s} s"):
            yield _measured(scene, system, round_s, sizes.seconds)


def _measured(scene: Scene, system: Follower, round_s: float, seconds: int) -> dict[str, Any]:
    name = f"fresh_{uuid.uuid4().hex[:6]}"
    frame, table = topics.make(scene.job, name, TRADES), f"{name}_{system.name}"
    if not system.makes_tables:
        topics.create_table(scene.job, name, table)
    with system.following(scene, name, table, round_s) as running, Watch(scene.job.lake, table) as watch:
        load = _Load(scene, name, frame, (WARM_S + seconds) * RATE)
        watch.wait_for(load.warm())
        begin, began = running.read(), time.time()
        load.run(seconds)
        end, ended = running.read(), time.time()
        watch.wait_for(load.sent)
    ages = watch.ages(began, ended)
    spent = Spent.between(begin, end)
    return {
        "system": system.title,
        "rounds s": round_s,
        "p50 ms": round(float(np.percentile(ages, 50))),
        "p99 ms": round(float(np.percentile(ages, 99))),
        "most ms": round(float(ages.max())),
        "cores": round(spent.cpu_s / spent.wall_s, 2),
        "commits": watch.commits(began, ended),
        "files": watch.files,
        "records": len(ages),
        "others": f"{spent.disturbance:.0%}",
    }


@dataclass(slots=True)
class _Load:
    """Trades at a fixed rate, each with the time at which it was handed over."""

    scene: Scene
    topic: str
    frame: bytes
    count: int
    sent: int = 0
    _producer: Producer = field(init=False)
    _records: list[tuple[bytes, bytes]] = field(init=False)

    def __post_init__(self) -> None:
        properties = client_properties(self.scene.job.kafka, self.scene.job.lake.region)
        self._producer = Producer({**properties, "linger.ms": 5, "compression.type": "lz4"})
        self._records = [
            each for pairs in blocks(TRADES, self.count, self.frame) for each in zip(*pairs, strict=True)
        ]

    def warm(self) -> int:
        self.run(WARM_S)
        return self.sent

    def run(self, seconds: float) -> None:
        began, before = time.monotonic(), self.sent
        while (passed := time.monotonic() - began) < seconds:
            for key, value in self._records[self.sent : before + int(passed * RATE)]:
                self._producer.produce(self.topic, value, key)
                self.sent += 1
            self._producer.poll(TICK_S)
        self._producer.flush()


class Watch:
    """Sees commits as a reader does, who asks the catalog again and again; it may be late by `LOOK_S`."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.files = 0
        self._lake, self._name = lake, name
        self._seen: dict[int, float] = {}
        self._over = threading.Event()
        self._rows = 0
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._looking.join()

    def wait_for(self, rows: int) -> None:
        """Wait until the table has so many rows."""
        self._until(lambda: self._rows >= rows)

    def commits(self, begin: float, end: float) -> int:
        return sum(begin <= at < end for at in self._seen.values())

    def ages(self, begin: float, end: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Milliseconds from the timestamp of each record of that time until it could be read."""
        table = open_catalog(self._lake).load_table((self._lake.database, self._name))
        seen_at = {path: self._seen[each] for each in self._seen for path in _added(table, each)}
        paths = ", ".join(map(literal, seen_at))
        with connect(self._lake) as connection:
            found = connection.execute(
                "SELECT filename, epoch_ms(_kafka.timestamp) AS sent_ms, count(*) AS n"  # noqa: S608 quoted
                f" FROM read_parquet([{paths}], filename = true) WHERE sent_ms >= {begin * 1000} AND sent_ms < {end * 1000}"
                " GROUP BY filename, sent_ms"
            ).fetchall()
        self.files = len({path for path, _, _ in found})
        ages = np.array([seen_at[path] * 1000 - at for path, at, _ in found])
        return np.repeat(ages, [n for _, _, n in found])

    def _look(self) -> None:
        glue = aws.client("glue", str(self._lake.endpoint))
        location = ""
        while not self._over.wait(LOOK_S):
            try:
                found = glue.get_table(DatabaseName=self._lake.database, Name=self._name)
            except glue.exceptions.EntityNotFoundException:
                continue
            now, before = time.time(), location
            location = found["Table"]["Parameters"]["metadata_location"]
            if location != before:
                self._note(now)

    def _note(self, now: float) -> None:
        table = open_catalog(self._lake).load_table((self._lake.database, self._name))
        for snapshot in table.snapshots():
            self._seen.setdefault(snapshot.snapshot_id, now)
        if (head := table.current_snapshot()) and head.summary:
            self._rows = int(head.summary["total-records"] or 0)

    def _until(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > until:
                raise TimeoutError(f"{self._name} has {self._rows:,} rows after {PATIENCE_S} s")
            time.sleep(LOOK_S)


def _added(table: Table, snapshot_id: int) -> list[str]:
    """The data files of an append."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None or snapshot.summary.operation.value != "append":
        return []
    return [
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
    ]
