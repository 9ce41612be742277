"""What a deployment tells others on EventBridge: the names, and what every detail has.

An announcement is a nudge, never the truth: it may come twice, late, out of order, or not at all. Who acts on one reads the table
itself and is done when both agree, so that the order is the table's own.
`docs/announcements.md` has the JSON schema of each detail.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from calve.config.publishing import Export
from calve.names import TableName
from calve.table.protocol import Commit
from calve.table.summary import ANNOUNCED, COUNTS, has_ledger, ledger_of, metrics_of, round_of

SOURCE = "calve"
COMMITTED = "calve.table.committed"
EVOLVED = "calve.schema.evolved"
SUSPENDED = "calve.table.suspended"
OVER_BUDGET = "calve.dead_letter.budget_exceeded"
EXPORT_CREATED = "calve.export.created"
EXPORT_FAILED = "calve.export.failed"
OF_TABLES = (COMMITTED, EVOLVED, SUSPENDED, OVER_BUDGET)
"""Those that a job sends."""
VERSION = 1
"""Of the details; a key may be added to a version, none is taken away or gets another meaning."""
OVER_BUDGET_CODE = "rejects_over_budget"
MAX_CHANGES = 100
MAX_TEXT = 1_000
"""Characters of a sentence: the log has the whole of it, and an event has a greatest size."""


def pattern(deployment: str, *kinds: str) -> dict[str, Any]:
    """The pattern of a rule for these kinds of one deployment; another deployment's are on the same bus."""
    return {"source": [SOURCE], "detail-type": list(kinds), "detail": {"deployment": [deployment]}}


def with_rows(deployment: str, table: str, value: str) -> dict[str, Any]:
    """The pattern of a rule for commits that have rows of a counted value, each of them once as far as the job knows."""
    found = pattern(deployment, COMMITTED)
    counted = {"counts": {"values": {value: [{"exists": True}]}}}
    found["detail"] |= {"table": [table], "again": [False], **counted}
    return found


def table_of(detail: Mapping[str, Any]) -> TableName:
    """The table that a detail is about.

    Raises:
        KeyError: it is about none.
    """
    return TableName(detail["database"], detail["table"])


@dataclass(frozen=True, slots=True)
class Announcement:
    """One event on the bus."""

    kind: str
    detail: Mapping[str, Any]

    def entry(self) -> dict[str, str]:
        """As `PutEvents` takes it."""
        return {"Source": SOURCE, "DetailType": self.kind, "Detail": json.dumps(self.detail)}


def of_deployment(deployment: str, table: TableName) -> dict[str, Any]:
    """What every detail has that is about a table."""
    return {"version": VERSION, "deployment": deployment, "database": table.database, "table": table.table}


@dataclass(frozen=True, slots=True)
class Found:
    """The table as it was when it was announced: its id, and the metadata file that said what it holds."""

    table_uuid: str
    metadata_location: str


@dataclass(frozen=True, slots=True)
class EventSource:
    """A table of a job, as its announcements name it."""

    deployment: str
    job: str
    table: TableName

    def committed(self, commit: Commit, found: Found, *, again: bool) -> Announcement:
        """A snapshot of main, whoever made it: the same detail whenever it is announced, but for `found` and `again`.

        again: the job knows that it was announced before.
        """
        metrics = metrics_of(commit.summary)
        of_calve = has_ledger(commit.summary)
        ledger = ledger_of(commit.summary) if of_calve else None
        detail = {
            "snapshot_id": str(commit.id),
            "parent_id": None if commit.parent is None else str(commit.parent),
            "sequence_number": commit.sequence,
            "committed_at": moment(commit.committed_at),
            "operation": commit.operation,
            "metadata_location": found.metadata_location,
            "table_uuid": found.table_uuid,
            "round": round_of(commit.summary),
            "rows": {"appended": ledger.rows_appended, "deleted": ledger.rows_deleted} if ledger else None,
            "records": ledger.consumed if ledger else None,
            "dead_lettered": ledger.dead_lettered if ledger else None,
            "lag": {"records": metrics["lag_records"], "seconds": metrics["lag_s"]}
            if "lag_records" in metrics
            else None,
            "complete_until": moment(metrics["complete_until"]) if metrics.get("complete_until") else None,
            "counts": metrics.get(COUNTS),
            "again": again,
        }
        return self._of(COMMITTED, detail)

    def evolved(self, changes: Sequence[str], found: Found, *, schema_id: int | None) -> Announcement:
        """The table has other columns; schema_id: the registry's, of the version that asked for them."""
        detail = {
            "schema_id": None if schema_id is None else str(schema_id),
            "changes": list(changes[:MAX_CHANGES]),
            "further_changes": max(0, len(changes) - MAX_CHANGES),
            "metadata_location": found.metadata_location,
            "table_uuid": found.table_uuid,
        }
        return self._of(EVOLVED, detail)

    def stopped(
        self, state: Literal["suspended", "failed"], code: str, reason: str, fix: str | None
    ) -> list[Announcement]:
        """The table waits for somebody, or is tried again; the texts are those of the log's `table.state`."""
        detail = {
            "state": state,
            "code": code,
            "reason": reason[:MAX_TEXT],
            "fix": None if fix is None else fix[:MAX_TEXT],
        }
        kinds = [SUSPENDED, *([OVER_BUDGET] if code == OVER_BUDGET_CODE else [])]
        return [self._of(kind, detail) for kind in kinds]

    def _of(self, kind: str, detail: Mapping[str, Any]) -> Announcement:
        return Announcement(
            kind, of_deployment(self.deployment, self.table) | {"job": self.job} | dict(detail)
        )


def export_created(
    deployment: str, export: Export, window: Mapping[str, str], delivered: Mapping[str, Any]
) -> Announcement:
    """delivered: `bucket`, `manifest`, `files`, and of the manifest what says how good the delivery is."""
    named = {"name": export.name, "database": export.database, "table": export.table}
    detail = of_deployment(deployment, TableName(export.database, export.table))
    return Announcement(EXPORT_CREATED, detail | {"export": named, "window": dict(window)} | dict(delivered))


def export_failed(
    deployment: str, export: Export, window: Mapping[str, str] | None, *, reason: str, final: bool
) -> Announcement:
    """The whole export goes along: whoever mails its recipients knows them from here alone. final: it is not tried again."""
    detail = of_deployment(deployment, TableName(export.database, export.table))
    told = {"export": json.loads(export.to_json()), "window": window, "reason": reason, "final": final}
    return Announcement(EXPORT_FAILED, detail | told)


def sent_to(ancestors: Iterable[Commit]) -> int:
    """The sequence number up to which snapshots were announced, for all that they know: the nearest that says it."""
    for commit in ancestors:
        found = metrics_of(commit.summary).get(ANNOUNCED)
        if found is not None:
            return int(found)
    return 0


def moment(seconds: float) -> str:
    """Epoch seconds in ISO 8601, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
