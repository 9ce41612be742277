"""Commits that are no rounds: each says again where the table stands, so that no round loses against it (ADR 31)."""

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

"""The summary entry that finds a commit again whose answer was lost."""
ATTEMPTS = 10
"""More than the rounds that can be published between a look at the table and the commit, some milliseconds later."""


class CarriedCommit:
    """A table under maintenance: `main` itself or its dead letters. It is left alone while a person is being forgotten.

    Who is forgotten takes along every file that no snapshot names (`glue_jobs.iceberg.purge`), so that what was written
    before must not be committed behind it: the audit of the table must be what it was when the work began.
    """

    def __init__(self, table: Table, main: Table) -> None:
        self.table = table
        self._main = main
        self._audit = main.properties.get(FORGOTTEN)

    @property
    def is_forgetting(self) -> bool:
        """Whether a person is, or has been since the work began; as of the last refresh of the tables."""
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
        """Commit what `update` makes, anew for each attempt. receipt: what it has taken. said: what else the summary says, given
        the commit that says where the table stands.

        Raises:
            Conflict: the files are not what they were; nothing was committed.
            Retryable: the table says nowhere in its history where it stands, a person is being forgotten, or the catalog does not
                say what became of the commit.
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
