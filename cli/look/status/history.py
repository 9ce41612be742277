"""What one table went through: its kept snapshots with their ledgers and figures, and its states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyiceberg.catalog import Catalog

from calve.names import TableName
from calve.outputs.job_status import Earlier
from calve.requests import backfill, forget, redrive
from calve.requests.requests import Entry
from calve.table.position import MAINTENANCE
from cli.lake import Snapshot, ancestors, load, state_of
from cli.look.description import snapshot_document, snapshot_line

REQUESTED = {redrive.REQUEST_ID: "redrive", forget.REQUEST_ID: "forget", backfill.REQUEST_ID: "backfill"}


@dataclass(frozen=True, slots=True)
class History:
    """The newest first of each. snapshots: those of main that are kept. done: what people had done to the table."""

    snapshots: tuple[Snapshot, ...] = ()
    states: tuple[Earlier, ...] = ()
    done: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, catalog: Catalog, name: TableName, now: Earlier) -> History:
        """A table's, which is in the state `now`; empty where it does not exist yet.

        Raises:
            Retryable, Fatal: the catalog does not answer, or refuses.
        """
        table = load(catalog, name)
        if table is None:
            return cls()
        state = state_of(table)
        states = (now, Earlier(state.state, state.since, state.code), *state.before)
        if now.state == state.state:
            states = states[1:]
        done = tuple(reversed(Entry.all(table.properties)))
        return cls(tuple(ancestors(table)), states, done)

    def figures(self, name: str) -> list[tuple[datetime, float]]:
        """One of the figures of the rounds with the moment of their commit, the oldest first."""
        return [
            (each.committed_at, float(each.metrics[name]))
            for each in reversed(self.snapshots)
            if name in each.metrics
        ]

    @property
    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "snapshots": [snapshot_document(each) for each in self.snapshots],
            "states": [asdict(each) for each in self.states],
            "done": [asdict(each) for each in self.done],
        }


def lines(history: History, limit: int) -> Iterator[dict[str, object]]:
    """The newest snapshots for people: what each did, what its round cost, and how late it was."""
    for each in history.snapshots[:limit]:
        line = snapshot_line(each)
        del line["operation"]
        yield (
            {"snapshot": line.pop("snapshot"), "committed": line.pop("committed"), "what": kind(each)}
            | line
            | _round(each.metrics)
        )


def kind(snapshot: Snapshot) -> str:
    """What made a snapshot, in a word."""
    asked = next((word for name, word in REQUESTED.items() if name in snapshot.summary), None)
    if asked:
        return asked
    if MAINTENANCE in snapshot.summary:
        return snapshot.summary[MAINTENANCE].replace("_", " ")
    if snapshot.operation == "replace":
        return "merge"
    if "calve.to" not in snapshot.summary:
        return "others"
    return "round" if snapshot.ledger else "made"


def _round(metrics: dict[str, Any]) -> dict[str, object]:
    requests = [
        metrics[name] for name in ("s3_puts", "s3_gets", "s3_lists", "catalog_calls") if name in metrics
    ]
    return {
        "lag": metrics.get("lag_records"),
        "p95_s": metrics.get("freshness_p95_s"),
        "round_ms": metrics.get("round_ms"),
        "commit_ms": metrics.get("commit_ms"),
        "requests": sum(requests) if requests else None,
        "bytes": metrics.get("bytes_written", metrics.get("file_bytes")),
        "cpu_s": metrics.get("cpu_s"),
    }
