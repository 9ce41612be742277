"""Commits that are not rounds. Each repeats the table's position in its summary, so that no round loses against it (ADR 31)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calve.config.maintenance import Kind
from calve.errors import LostRace, Retryable
from calve.table.protocol import Commit, standing
from calve.table.summary import FORGET, FORGET_LEFT, FORGOTTEN, MAINTENANCE, ROUND, WORK, restated, round_of
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.staging import Ambiguous, commit

ATTEMPTS = 10
"""More than the rounds that can commit in the milliseconds between a look at the table and this commit."""


class CarriedCommit:
    """A table under maintenance: `main` itself or its dead letters. Maintenance skips it during a forget request.

    A forget request deletes every file that no snapshot names (`glue_jobs.iceberg.purge`).
    So files written before it must not be committed after it: the table's forget audit must not change during the work.
    """

    def __init__(self, table: Table, main: Table) -> None:
        self.table = table
        self._main = main
        self._audit = main.properties.get(FORGOTTEN)

    @property
    def is_forgetting(self) -> bool:
        """Whether a forget request runs, or has run since the work began, as of the last refresh."""
        found = self._main.properties
        asked = not found.keys().isdisjoint((FORGET, FORGET_LEFT))
        return asked or found.get(FORGOTTEN) != self._audit

    def refresh(self) -> None:
        self.table.refresh()
        if self._main is not self.table:
            self._main.refresh()

    def commit(
        self,
        kind: Kind,
        update: Callable[[], Any],
        receipt: Mapping[str, Any],
        said: Callable[[Commit], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """Commit `update`, which is built again for each attempt. receipt: the cost of the work.

        said: more summary entries, given the commit with the table's position.

        Raises:
            Conflict: the files have changed; nothing was committed.
            Retryable: the history has no position, a forget request runs, or the commit's result is unknown.
        """
        work = uuid.uuid4().hex
        failure = ""
        for _ in range(ATTEMPTS):
            self.refresh()
            if any(each.summary.get(WORK) == work for each in self.table.ancestors()):
                return
            stood = standing(self.table.ancestors())
            if stood is None or self.is_forgetting:
                why = "a person is being forgotten" if stood else "its history does not say where it stands"
                raise Retryable(f"table {self.table.name}: {why}")
            summary = restated(stood.summary, receipt) | {MAINTENANCE: kind, WORK: work} | dict(said(stood))
            try:
                commit(self.table, update(), summary, self._unmoved(summary[ROUND]))
            except (LostRace, Ambiguous) as error:
                failure = error.message
            else:
                return
        raise Retryable(failure)

    def _unmoved(self, round_id: str) -> Callable[[Iterator[Commit]], bool]:
        def accept(ancestors: Iterator[Commit]) -> bool:
            if self._main is not self.table:
                self._main.refresh()
            stood = standing(ancestors)
            return stood is not None and round_of(stood.summary) == round_id and not self.is_forgetting

        return accept
