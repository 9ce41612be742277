"""Whether a round's rejects may be published, and whether a second read found the same ones."""

from __future__ import annotations

import time

from calve.earlier import Earlier
from calve.errors import Retryable, Suspended
from calve.protocol import TopicState
from calve.rejects import Tally, check_rejects
from glue_jobs.reading import Reading
from glue_jobs.seen import Seen
from glue_jobs.staging import Staged, discard


def require_allowed(reading: Reading, seen: Seen, staged: Staged) -> None:
    """Look at the table's policy and budget; rows that were staged in vain are deleted, since the round will be tried again.

    Raises:
        Suspended: as `calve.rejects.check_rejects`.
    """
    target = reading.target
    line = list(target.main.ancestors())
    known = Earlier.of(target.main.properties, line)
    try:
        check_rejects(
            target.table,
            known.rest(line) if known else line,
            now=time.time(),
            read=Tally(seen.own, seen.rejects),
            found=lambda: reading.count_rejects(seen),
            misfit=target.misfit,
            expired=known.spent if known else (),
        )
    except Suspended:
        discard(target.main, staged)
        raise


def require_same(topic: TopicState, seen: Seen, again: int) -> None:
    """Compare the number of rejects of both reads.

    Raises:
        Retryable: the topic was compacted in between.
        Suspended: `rejects_differ`.
    """
    if topic.compacted and again < seen.rejects:
        raise Retryable(f"topic {topic.name} was compacted while its rejects were read again")
    if again != seen.rejects:
        raise Suspended(
            "rejects_differ", f"{seen.rejects} records were rejected, {again} when they were read again"
        )
