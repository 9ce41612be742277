"""Events on EventBridge: their names and details.

An event is a hint, not the truth: it may come twice, late, out of order, or not at all.
A consumer reads the table and is done when both agree. So the order is that of the table.
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
"""The kinds that a job sends."""
VERSION = 1
"""The version of the details. A version may get more keys, but no key is removed or changes its meaning."""
OVER_BUDGET_CODE = "rejects_over_budget"
ALERT = "alert"
MAX_CHANGES = 100
MAX_TEXT = 1_000
"""The most characters of a text, because events have a size limit. The log has the full text."""


def pattern(deployment: str, *kinds: str) -> dict[str, Any]:
    """The rule pattern for these kinds of one deployment; events of other deployments use the same bus."""
    return {"source": [SOURCE], "detail-type": list(kinds), "detail": {"deployment": [deployment]}}


def with_alerts(deployment: str) -> dict[str, Any]:
    """The rule pattern for commits with rows that somebody must know of, each once as far as the job knows."""
    found = pattern(deployment, COMMITTED)
    found["detail"] |= {"again": [False], ALERT: [{"exists": True}]}
    return found


def table_of(detail: Mapping[str, Any]) -> TableName:
    """The table of a detail. Raises KeyError: the detail is not about a table."""
    return TableName(detail["database"], detail["table"])


@dataclass(frozen=True, slots=True)
class Announcement:
    """One event on the bus."""

    kind: str
    detail: Mapping[str, Any]

    def entry(self) -> dict[str, str]:
        return {"Source": SOURCE, "DetailType": self.kind, "Detail": json.dumps(self.detail)}


def of_deployment(deployment: str, table: TableName) -> dict[str, Any]:
    return {"version": VERSION, "deployment": deployment, "database": table.database, "table": table.table}


@dataclass(frozen=True, slots=True)
class EventSource:
    """A table of a job, as its announcements name it. found: the table's `table_uuid` and `metadata_location` at their time.

    alert_on: counted values that operators must hear of.
    """

    deployment: str
    job: str
    table: TableName
    alert_on: tuple[str, ...] = ()

    def committed(self, commit: Commit, found: Mapping[str, str], *, again: bool) -> Announcement:
        """A snapshot of main, by any writer. Repeated announcements have the same detail, except for `found` and `again`.

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
            **found,
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
        counts = metrics.get(COUNTS) or {"values": {}}
        if alerting := [each for each in self.alert_on if each in counts["values"]]:
            detail[ALERT] = f"{counts['column']} {', '.join(alerting)}"
        return self._of(COMMITTED, detail)

    def evolved(
        self, changes: Sequence[str], found: Mapping[str, str], *, schema_id: int | None
    ) -> Announcement:
        """The table has new columns. schema_id: the registry's id of the version that required them."""
        detail = {
            "schema_id": None if schema_id is None else str(schema_id),
            "changes": list(changes[:MAX_CHANGES]),
            "further_changes": max(0, len(changes) - MAX_CHANGES),
            **found,
        }
        return self._of(EVOLVED, detail)

    def stopped(
        self, state: Literal["suspended", "failed"], code: str, reason: str, fix: str | None
    ) -> list[Announcement]:
        """The table is suspended, or failed and is retried; the texts are those of the log's `table.state`."""
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
    """delivered: `bucket`, `manifest`, `files`, and the manifest's entries about the quality of the delivery."""
    named = {"name": export.name, "database": export.database, "table": export.table}
    detail = of_deployment(deployment, TableName(export.database, export.table))
    return Announcement(EXPORT_CREATED, detail | {"export": named, "window": dict(window)} | dict(delivered))


def export_failed(
    deployment: str, export: Export, window: Mapping[str, str] | None, *, reason: str, final: bool
) -> Announcement:
    """Includes the whole export: the mailing function learns the recipients only from here. final: there is no further try."""
    detail = of_deployment(deployment, TableName(export.database, export.table))
    facts = {"export": json.loads(export.to_json()), "window": window, "reason": reason, "final": final}
    return Announcement(EXPORT_FAILED, detail | facts)


def sent_to(ancestors: Iterable[Commit]) -> int:
    """The sequence number up to which snapshots are known to be announced, from the nearest commit that has one."""
    for commit in ancestors:
        found = metrics_of(commit.summary).get(ANNOUNCED)
        if found is not None:
            return int(found)
    return 0


def moment(seconds: float) -> str:
    """Epoch seconds in ISO 8601, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
