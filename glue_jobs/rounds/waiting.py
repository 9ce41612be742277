"""The tables that wait for their next round. A waiting table has no thread: one thread looks at all of them together.

It asks Kafka for the ends of their topics and the catalog for their metadata files, in a few requests for all tables.
A round begins earlier if the topic has much to read, or if somebody requests something of the table.
The wait of an idle table begins again whenever a look finds its topic and its table as they were.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from py4j.protocol import Py4JError

from calve.errors import CalveError
from calve.names import TableName
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.rounds.loop import NOTE_EVERY_S, TableLoop

TICK_S = 0.25
CATALOG_EVERY_S = 30.0
"""How often the catalog is asked: a request for 100 tables."""
REST_S, LONGEST_REST_S = 1.5, 1800.0
"""How long an idle table rests between two rounds: the first for each table of the job. So all idle tables together have
about one round a second. Exports may have to wait so long for a table's note of completeness."""
UNANSWERED = (CalveError, Py4JError, ConnectionError)
"""A failed look is repeated. Meanwhile rounds begin when they are due, and name the trouble."""


@dataclass(slots=True)
class Waiting:
    """Thread-safe. `working`: how many tables, and other works of the job, do not wait here."""

    stop: threading.Event
    working: int = 0
    _tables: dict[TableName, TableLoop] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def begin(self) -> None:
        with self._changed:
            self.working += 1

    def end(self) -> None:
        with self._changed:
            self.working -= 1
            self._changed.notify_all()

    def add(self, table: TableLoop) -> None:
        with self._changed:
            self._tables[table.opener.name] = table
            self._changed.notify_all()

    def due(self) -> list[TableLoop]:
        """Wait until rounds are due; returns their tables, which work now. Empty: no work is left, or the job stops."""
        with self._changed:
            while self._tables or self.working:
                if self.stop.is_set():
                    for each in self._tables.values():
                        each.heard_at = math.inf
                    self._tables.clear()
                now = time.monotonic()
                if found := [each for each in self._tables.values() if each.due_at <= now]:
                    for each in found:
                        del self._tables[each.opener.name]
                    self.working += len(found)
                    return found
                soonest = min((each.due_at for each in self._tables.values()), default=now + 1.0)
                self._changed.wait(min(soonest - now, TICK_S))
        return []

    def look(self, over: threading.Event) -> None:
        """Look at the waiting tables until the job is over."""
        while not over.wait(TICK_S):
            with self._changed:
                tables = list(self._tables.values())
            now = time.monotonic()
            topics: defaultdict[Cluster, list[TableLoop]] = defaultdict(list)
            lakes: defaultdict[Lake, list[TableLoop]] = defaultdict(list)
            for each in tables:
                lakes[each.opener.services.lake].append(each)
                if each.looks_at <= now:
                    topics[each.opener.services.cluster].append(each)
            for cluster, those in topics.items():
                with contextlib.suppress(*UNANSWERED):
                    self._look_at_topics(cluster, those)
            for lake, those in lakes.items():
                if any(now - each.listed_at >= CATALOG_EVERY_S for each in those):
                    with contextlib.suppress(*UNANSWERED):
                        self._look_at_catalog(lake, those)

    def _look_at_topics(self, cluster: Cluster, tables: Iterable[TableLoop]) -> None:
        asked = time.monotonic()
        for each in tables:
            each.looks_at = asked + each.poll_s
        ends = cluster.ends([each.opener.config.topic for each in tables])
        with self._changed:
            rest_s = min(LONGEST_REST_S, max(NOTE_EVERY_S, REST_S * len(self._tables)))
            for each in tables:
                end = ends.get(each.opener.config.topic)
                if end is not None and each.opener.name in self._tables:
                    each.looked(end, asked, rest_s)
            self._changed.notify_all()

    def _look_at_catalog(self, lake: Lake, tables: Iterable[TableLoop]) -> None:
        for each in tables:
            each.listed_at = time.monotonic()
        found = lake.locations({each.opener.name for each in tables})
        for each in tables:
            if found.get(each.opener.name, each.location) != each.location and _must_look(each):
                with self._changed:
                    each.due_at = 0.0
                    self._changed.notify_all()


def _must_look(table: TableLoop) -> bool:
    """Whether the next round must begin at once, as somebody has committed to the table."""
    if table.idle:
        return True
    with contextlib.suppress(*UNANSWERED):  # a table that cannot be loaded hides no other
        return table.opener.requested()
    return False
