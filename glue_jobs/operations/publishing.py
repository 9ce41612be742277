"""Check whether a round's rejects are allowed, and commit a round: rows and position on main, with a known result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from calve.errors import CalveError, LostRace, Retryable, Suspended
from calve.requests.expired_history import ExpiredHistory
from calve.rounds.dead_letter_policy import RejectCounts, check_rejects
from calve.table.digests import entry
from calve.table.position import Ledger, Position, TopicKey
from calve.table.protocol import (
    TopicState,
    ancestry_is_cut,
    contains_round,
    may_publish,
    nearest_position,
    only_rewritten,
)
from calve.table.summary import encode
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.staging import NOTHING, Ambiguous, Conflict, Staged, discard, publish
from glue_jobs.process import faults
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable

COMMIT_ATTEMPTS = 3
"""Commits of a round without an answer."""
MOST_ATTEMPTS = 20
"""All commits of a round. A compaction takes longer than writing the deletes again, so the round soon wins."""
EMPTY: Mapping[str, Any] = MappingProxyType({})


def publish_round(
    main: Table, staged: Staged, summary: Mapping[str, str], *, base: Position, round_id: str
) -> tuple[int, Staged]:
    """Commit the same rows until the result is known; returns the snapshot id, and its files.

    After a lost answer, look for the round in main's history. After a compaction by others, write the deletes again.
    Raises LostRace: main is at another round than `base`.
    Raises Retryable: the catalog does not answer, others changed rows of files with deleted rows, or they expired the proof of
    the position.
    """
    unanswered = 0
    for _ in range(MOST_ATTEMPTS):
        try:
            return publish(main, staged, summary, lambda ancestors: may_publish(ancestors, base)), staged
        except (Ambiguous, Conflict, LostRace) as error:
            main.refresh()
            since = takewhile(lambda each: each.id != base.snapshot, main.ancestors())
            mine = next((each.id for each in since if contains_round([each], round_id)), None)
            if mine is not None:
                return mine, staged
            failure = error
        if isinstance(failure, Ambiguous):
            unanswered += 1
            if unanswered == COMMIT_ATTEMPTS:
                break
        else:
            staged = _deleting_again(main, staged, base, failure)
    raise Retryable(failure.message)


def _deleting_again(main: Table, staged: Staged, base: Position, refusal: CalveError) -> Staged:
    """The staged rows with deletes that fit main as it is now. Raises LostRace, Retryable: the rows may have changed."""
    refused, old = _refused(main, base, refusal), staged.deletes
    if refused is not refusal or not isinstance(refusal, Conflict) or old is None or old.base is None:
        raise refused from None
    if not only_rewritten(main.ancestors(), old.base):
        raise refusal
    deletes = old.again()
    discard(main, replace(NOTHING, deletes=old))
    if (deletes.rows if deletes else 0) != old.rows:
        raise refusal
    faults.point("publish.redone", main.name.table)
    return replace(staged, deletes=deletes)


def publish_work(
    table: OpenTable,
    base: Position,
    position: Position,
    staged: Staged,
    ledger: Ledger,
    *,
    topic: TopicKey | None = None,
    metrics: Mapping[str, Any] = EMPTY,
    entries: Mapping[str, str] = EMPTY,
) -> int:
    """As `publish_round`, for a commit that reads no offsets: the time of completeness stays.

    topic: of the rows; None: the newest of `base`. entries: further entries of the summary.
    """
    measured = dict(metrics or {})
    if measured:
        measured |= {"files": len(staged.files), "file_bytes": staged.size_bytes}
    summary = encode(
        position=position,
        topic=topic or base.newest,
        start={},
        ledger=ledger,
        metrics=measured | table.carried(),
    )
    summary |= {**entry(staged.sums), **entries}
    return publish_round(table.main, staged, summary, base=base, round_id=position.round)[0]


def _refused(main: Table, base: Position, error: CalveError) -> CalveError:
    """The real reason of a refusal; the refusal itself if main is still at `base`.

    Iceberg checks files before the position, and expiry removes positions.
    """
    ancestors = tuple(main.ancestors())
    if may_publish(ancestors, base):
        return error
    if nearest_position(ancestors) is None and ancestry_is_cut(ancestors):
        return Retryable(f"table {main.name}: its history was expired while the round was under way")
    return LostRace(f"table {main.name}: another writer published first, or main was rolled back")


def require_allowed(batch: Batch, counts: Counts, staged: Staged) -> None:
    """Check the table's policy and budget. On refusal, delete the staged rows, because the round is retried.

    Raises Suspended: as `calve.rounds.dead_letter_policy.check_rejects`.
    """
    table = batch.table
    line = list(table.main.ancestors())
    known = ExpiredHistory.of(table.main.properties, line)
    try:
        check_rejects(
            table.config,
            known.rest(line) if known else line,
            now=time.time(),
            read=RejectCounts(counts.own, counts.rejects),
            found=lambda: batch.count_rejects(counts),
            misfit=lambda name: table.schemas.misfit(table.columns, name),
            expired=known.spent if known else (),
        )
    except Suspended:
        discard(table.main, staged)
        raise


def require_same(topic: TopicState, counts: Counts, again: int) -> None:
    """Compare the number of rejects of both reads.

    Raises Retryable: the topic was compacted in between.
    Raises Suspended: `rejects_differ`.
    """
    if topic.compacted and again < counts.rejects:
        raise Retryable(f"topic {topic.name} was compacted while its rejects were read again")
    if again != counts.rejects:
        raise Suspended(
            "rejects_differ", f"{counts.rejects} records were rejected, {again} when they were read again"
        )
