"""The checks that the passes over topic and table prove, with figures, and findings other than differing rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from calve.names import SYSTEM_COLUMN
from cli.verify.compare import Sides
from cli.verify.findings import Check, Finding, Findings, PartitionDigest, ranges
from cli.verify.keyed.deduplicate import Firsts
from cli.verify.keyed.upsert import Fold


def checks_of(sides: Sides, findings: Iterable[Finding]) -> list[Check]:
    """The checks, in the order of display."""
    failed = {each.check for each in findings}

    def check(name: str, figures: Mapping[str, int | str]) -> Check:
        return Check(name, "failed" if name in failed else "proved", dict(figures))

    topic, dead_letters, totals = sides.topic, sides.dead_letters, sides.topic.totals
    dead: dict[str, int | str] = {
        "compared": dead_letters.digests.count,
        **dict(sorted(dead_letters.by_reason.items())),
    }
    if dead_letters.came_back:
        dead["redriven"] = dead_letters.came_back
    if dead_letters.rows and dead_letters.rows.pending:
        dead["waiting on a branch"] = f"round {dead_letters.rows.pending}"
    checks = [check("coverage", _coverage(sides)), check("dead letters", dead)]
    if totals is None:
        checks.append(check("contents", {"rows": sides.table.rows.count, "files": len(sides.main.tasks)}))
    else:
        checks.append(totals.check())
    if sides.claim.redrives or dead_letters.came_back:
        back = {"dead_letters": dead_letters.came_back, "rows": sides.claim.totals.redriven}
        checks.append(check("redriven", back))
    if topic.fold is not None:
        checks.append(check("keys", topic.fold.figures()))
    if sides.claim.known_from_birth:
        said = sides.claim.totals
        deleted = {"rows_deleted": said.rows_deleted} if said.rows_deleted else {}
        rows = {"rows": sides.table.total, "rows_appended": said.rows_appended}
        checks.append(check("totals", rows | deleted))
    for each in (topic.filters, topic.skips, topic.left_out):
        checks += each.checks(sides.spans, compacted=sides.compacted, failed=each.check in failed)
    return [
        *checks,
        *_aged(sides),
        *topic.forgotten.checks(failed="forgotten" in failed),
        *_unverifiable(sides),
    ]


def _aged(sides: Sides) -> list[Check]:
    """Rows and dead letters that were deleted for their age and are not compared."""
    left = {"rows": sides.topic.aged, "dead_letters": sides.topic.aged_dead_letters}
    figures: dict[str, int | str] = {name: each.rows for name, each in left.items() if each is not None}
    return [Check("retention", "proved", figures)] if figures else []


def _coverage(sides: Sides) -> dict[str, int | str]:
    """The outcome of the offsets that Kafka still has."""
    offsets = sum(to - start for start, to in sides.spans.values())
    records, totals = sum(sides.topic.records.values()), sides.topic.totals
    rare = {
        "skipped": len(sides.topic.skips.found),
        "filtered": sum(each.total() for each in sides.topic.filters.counted.values()),
        "left out": sum(each.total() for each in sides.topic.left_out.counted.values()),
        "deduplicated": sides.topic.duplicates,
        "without rows": sides.topic.emptied,
        "partitions read by the job's fetch": sides.topic.fetched,
    }
    return {
        "offsets": offsets,
        "records": records,
        **({"rows": sides.table.rows.count} if totals is None else {"added_up": totals.records}),
        "dead_letters": sides.dead_letters.digests.count,
        **{name: count for name, count in rare.items() if count},
        "gaps": offsets - records,
    }


def digests_of(sides: Sides) -> tuple[PartitionDigest, ...]:
    """The digests of every partition on both sides; none for aggregates, whose rows have no partition."""
    found: list[PartitionDigest] = []
    if sides.topic.totals is not None:
        return ()
    for partition, (start, to) in sorted(sides.spans.items()):
        rows, table = sides.table.rows.partition(partition)
        _, topic = sides.topic.rows.partition(partition)
        found.append(PartitionDigest(partition, start, to, rows, f"{table:016x}", f"{topic:016x}"))
    return tuple(found)


def findings_of(sides: Sides) -> list[Finding]:
    """Faults other than differing rows: places, reasons, the topic's end, totals."""
    findings = [*_outside(sides), *_misplaced(sides), *_of_keys(sides), *_totals(sides)]
    for each in (sides.topic.skips, sides.topic.filters, sides.topic.left_out):
        findings += each.findings(sides.spans, compacted=sides.compacted)
    return findings


def _unverifiable(sides: Sides) -> list[Check]:
    """Parts that cannot be proved any more; they keep the table from being called proved."""
    left_out = sum(sides.spans[p][0] - start for p, (start, _) in sides.claimed.items())
    expired = sum(
        max(0, min(to, sides.source.log_start.get(p, 0)) - start) for p, (start, to) in sides.claimed.items()
    )
    before = 0
    if not sides.claim.known_from_birth:
        before = sum(
            max(0, start - sides.source.log_start.get(p, 0))
            for p, (start, _) in sides.claimed.items()
            if start != sides.topic.forgotten.since.get(p)
        )
    unproved = {
        "expired": (expired, "offsets", "Kafka no longer holds them"),
        "earlier schema": (left_out - expired, "offsets", "it is no longer known how they were read"),
        "beginning": (before, "offsets", "the snapshots that said where the table begins have expired"),
        "sealed": (
            len(sides.dead_letters.unopened),
            "dead letters",
            "their encryption keys cannot be read: only their places and reasons were compared",
        ),
        "earlier topic": (sides.main.rows_left_out, "rows", "the topic was created again since"),
        "compacted": (sides.table.compacted, "rows", "Kafka has compacted their records away"),
        "order": (
            sides.topic.fold.ambiguous if sides.topic.fold else 0,
            "keys",
            "several partitions hold them, and tombstones of them",
        ),
        "duplicates": (
            min(_untold(sides), sides.topic.emptied) if isinstance(sides.topic.fold, Firsts) else 0,
            "records",
            "steps leave out all their rows, so their keys are unknown",
        ),
    }
    return [
        Check(name, "not verifiable", {what: count, "why": why})
        for name, (count, what, why) in unproved.items()
        if count > 0
    ]


def _untold(sides: Sides) -> int:
    """Duplicates of the ledgers that were not found in the topic: a record without rows has no key to tell."""
    return sides.claim.totals.deduplicated - sides.topic.duplicates


def _outside(sides: Sides) -> list[Finding]:
    findings = []
    for (file, partition), offsets in sides.table.outside.items():
        if partition is None:
            text = f"{len(offsets)} rows without {SYSTEM_COLUMN}.partition"
            findings.append(Finding("coverage", text, files=(file,)))
        else:
            places = tuple(ranges(sorted({each for each in offsets if each is not None})))
            text = "rows of offsets that the table does not claim"
            findings.append(Finding("coverage", text, partition, places, (file,)))
    return findings


def _of_keys(sides: Sides) -> list[Finding]:
    """Rows that should have been deleted, or never written, wherever their records are."""
    kinds = (
        ("rows with the key of another row", sides.table.doubled),
        ("rows of keys that later records have changed or deleted", sides.table.stale),
    )
    return [
        Finding("keys", text, partition, tuple(ranges(sorted(offsets))), (file,))
        for text, places in kinds
        for (file, partition), offsets in places.items()
    ]


def _misplaced(sides: Sides) -> list[Finding]:
    """Dead letters with a wrong reason, and claimed offsets beyond the topic's end."""
    found = Findings()
    for (partition, offset), (given, reason) in sides.topic.misjudged.items():
        text = f"dead letters with the reason {given}, but the bytes are {reason or 'a row of the table'}"
        found.add("dead letters", text, partition, offset)
    ends = {
        partition: (sides.source.end.get(partition, 0), to) for partition, (_, to) in sides.claimed.items()
    }
    return [
        *found.findings(),
        *(
            Finding(
                "coverage",
                f"the topic ends at {end}, the table claims offsets up to {to}",
                partition,
                ((end, to),),
            )
            for partition, (end, to) in ends.items()
            if to > end
        ),
    ]


def _totals(sides: Sides) -> list[Finding]:
    """The ledgers' sums against the present rows, also for records that Kafka no longer holds."""
    if not sides.claim.known_from_birth:
        return []
    totals = sides.claim.totals
    findings = []
    expected = totals.rows_appended - totals.rows_deleted - (sides.topic.aged.rows if sides.topic.aged else 0)
    # Rounds with a key may have deleted rows of an earlier topic, which do not count here.
    mixed = isinstance(sides.topic.fold, Fold) and sides.claim.mixed
    if sides.topic.totals is None and not mixed and sides.table.total != expected:
        text = f"the table has {sides.table.total} rows, its ledgers say {expected}"
        findings.append(Finding("totals", text))
    complete = sides.spans == sides.claimed and not sides.compacted
    if isinstance(sides.topic.fold, Firsts) and complete and not 0 <= _untold(sides) <= sides.topic.emptied:
        text = f"{sides.topic.duplicates} records are duplicates, the ledgers say {totals.deduplicated}"
        findings.append(Finding("totals", text))
    if sides.topic.aged_dead_letters is not None:
        lacking = sum(totals.rejected.values()) - sum(sides.dead_letters.by_reason.values())
        if lacking != sides.topic.aged_dead_letters.rows:
            text = f"{lacking} dead letters are missing, and retention deleted {sides.topic.aged_dead_letters.rows}"
            findings.append(Finding("totals", text))
    elif sides.dead_letters.by_reason != totals.rejected:
        text = f"the dead letters are {dict(sides.dead_letters.by_reason)}, the ledgers say {totals.rejected}"
        findings.append(Finding("totals", text))
    # A dead letter without its redrive mark counts twice: as redriven and as present.
    if not totals.redriven <= sides.dead_letters.came_back <= totals.redriven + totals.present:
        text = (
            f"{sides.dead_letters.came_back} dead letters came back, the ledgers of the redrives say {totals.redriven}"
            f" and {totals.present} that were in the table before"
        )
        findings.append(Finding("redriven", text))
    return findings
