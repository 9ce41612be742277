"""Topics by regular expression, looked for while the job runs: each new one gets a loop of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from calve.errors import Retryable
from calve.job import Job, Start, Table
from calve.log import event
from calve.names import TableName
from calve.topics import Keeper, NotKept, expand
from glue_jobs.backoff import FAILED_AFTER, backoff_s

EVERY_S = 60.0
TELL_EVERY_S = 240.0
"""So often that no five minutes of an alarm are without."""


@dataclass(slots=True)
class Discovery:
    """Looks for the topics of a job's patterns: once under `drain`, else every minute until `stop` is set.

    names: lists the cluster's topics, in one request. keep: begins to keep a table.
    """

    job: Job
    names: Callable[[], Iterable[str]]
    keeper: Keeper
    keep: Callable[[Table], TableName]
    stop: threading.Event
    drain: bool
    _kept: dict[str, str] = field(default_factory=dict)
    """Table -> topic, of the loops that were begun."""
    _told: dict[NotKept, float] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Look until the job ends.

        Raises:
            Retryable: under `drain`, topics cannot be listed.
        """
        failures = 0
        while not self.stop.is_set():
            wait_s = EVERY_S
            try:
                self.look()
                failures = 0
                if self.drain:
                    return
            except Retryable as error:
                failures += 1
                if failures == 1:
                    event("topics.not_listed", job=self.job.job, why=error.message, fix=error.fix)
                if self.drain and failures == FAILED_AFTER:
                    raise
                wait_s = backoff_s(failures)
            self.stop.wait(wait_s)

    def look(self) -> None:
        """Keep the topics that are new since the last look; say which ones match and are no table.

        Raises:
            Retryable: topics cannot be listed, or the catalog does not answer.
        """
        found = expand(self.job, self.names(), lambda table: self._kept.get(table) or self.keeper(table))
        starts = {each.name: self._start(each, found.tables) for each in self.job.patterns}
        new = [each for each in found.tables if self._kept.get(each.name) != each.topic]
        kept = [self.keep(replace(each, start=starts[each.pattern or ""])) for each in new]
        self._kept |= {each.name: each.topic for each in new}
        if new:
            event("topics.matched", job=self.job.job, tables=list(map(str, kept)), count=len(self._kept))
        self._tell(found.not_kept)

    def _start(self, pattern: Table, tables: Iterable[Table]) -> Start:
        """Where topics that are new begin. `latest` is for those that were there before the pattern was: what a topic got before
        it was noticed belongs to its table.
        """
        if pattern.start.at != "latest":
            return pattern.start
        begun = pattern.name in self._begun or any(
            self.keeper(each.name) is not None for each in tables if each.pattern == pattern.name
        )
        self._begun.add(pattern.name)
        return Start() if begun else pattern.start

    def _tell(self, not_kept: Iterable[NotKept]) -> None:
        now = time.monotonic()
        for each in not_kept:
            if each not in self._told or now - self._told[each] >= TELL_EVERY_S:
                self._told[each] = now
                event(
                    "topic.not_kept",
                    job=self.job.job,
                    topic=each.topic,
                    entry=each.entry,
                    reason=each.reason,
                    fix=each.fix,
                )
