"""The checks that the passes over topic and table prove, with figures, and findings other than differing rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from calve.names import SYSTEM_COLUMN
from cli.verify.findings import OTHERS, Check, Finding, Findings, PartitionDigest, ranges
from cli.verify.keyed.deduplicate import Firsts
from cli.verify.keyed.history import Versions
from cli.verify.keyed.upsert import Fold
from cli.verify.sides import Sides


def checks_of(sides: Sides, findings: Iterable[Finding]) -> list[Check]:
    failed = {each.check for each in findings}

    def check(name: str, figures: Mapping[str, int | str]) -> Check:
        return Check(name, "failed" if name in failed else "proved", dict(figures))

    letters, totals, said = sides.dead_letters, sides.totals, sides.claim.totals
    dead: dict[str, int | str] = {
        "compared": letters.digests.count,
        **dict(sorted(letters.by_reason.items())),
    }
    if letters.came_back:
        dead["redriven"] = letters.came_back
    if letters.rows and letters.rows.pending:
        dead["waiting on a branch"] = f"round {letters.rows.pending}"
    contents = {"rows": sides.table_rows.count, "files": len(sides.main.tasks)}
    contents |= {"rows_of_former_writer": former} if (former := sides.main.former) else {}
    checks = [check("coverage", _coverage(sides)), check("dead letters", dead)]
    checks.append(totals.check() if totals else check("contents", contents))
    if sides.claim.redrives or letters.came_back:
        checks.append(check("redriven", {"dead_letters": letters.came_back, "rows": said.redriven}))
    if sides.fold is not None:
        checks.append(check("keys", sides.fold.figures()))
    if sides.claim.known_from_birth:
        deleted = {"rows_deleted": said.rows_deleted} if said.rows_deleted else {}
        checks.append(check("totals", {"rows": sides.total, "rows_appended": said.rows_appended} | deleted))
    for each in (sides.filters, sides.skips, sides.left_out):
        checks += each.checks(sides.spans, compacted=sides.compacted, failed=each.check in failed)
    left = {"rows": sides.aged, "dead_letters": sides.aged_dead_letters}
    if aged := {name: each.rows for name, each in left.items() if each is not None}:
        checks.append(check("retention", aged))
    if sides.forgotten.requests:
        counts = {"rows": sides.forgotten.rows.count, "dead_letters": sides.forgotten.dead_letters.count}
        checks.append(check("forgotten", {"requests": sides.forgotten.requests} | counts))
    return [*checks, *_unverifiable(sides)]


def _coverage(sides: Sides) -> dict[str, int | str]:
    """The outcome of the offsets that Kafka still has."""
    offsets = sum(to - start for start, to in sides.spans.values())
    rare = {
        "skipped": len(sides.skips.found),
        "filtered": sum(each.total() for each in sides.filters.counted.values()),
        "left out": sum(each.total() for each in sides.left_out.counted.values()),
        "deduplicated": sides.duplicates,
        "without rows": sides.emptied,
        "partitions read by the job's fetch": sides.fetched,
    }
    return {
        "offsets": offsets,
        "records": sides.records,
        **({"added_up": sides.totals.records} if sides.totals else {"rows": sides.table_rows.count}),
        "dead_letters": sides.dead_letters.digests.count,
        **{name: count for name, count in rare.items() if count},
        "gaps": offsets - sides.records,
    }


def digests_of(sides: Sides) -> tuple[PartitionDigest, ...]:
    """The digests of every partition on both sides; none for aggregates, whose rows have no partition."""
    found: list[PartitionDigest] = []
    for partition, (start, to) in sorted(sides.spans.items()) if sides.totals is None else ():
        rows, table = sides.table_rows.partition(partition)
        _, topic = sides.topic_rows.partition(partition)
        found.append(PartitionDigest(partition, start, to, rows, f"{table:016x}", f"{topic:016x}"))
    return tuple(found)


def findings_of(sides: Sides) -> list[Finding]:
    """Faults other than differing rows: places, reasons, the topic's end, totals."""
    findings = []
    for (file, part), held in sides.outside.items():
        if part is None:
            text = f"{len(held)} rows without {SYSTEM_COLUMN}.partition"
            findings.append(Finding("coverage", text, files=(file,)))
        else:
            places = ranges(each for each in held if each is not None)
            text = "rows of offsets that the table does not claim"
            findings.append(Finding("coverage", text, part, places, (file,)))
    if (former := sides.main.former) > (left := sides.claim.adopted or 0):
        text = f"{former} rows have no offset that the job read; the table had {left} when it was adopted"
        findings.append(Finding("coverage", text))
    misjudged = Findings()
    for place, (given, reason) in sides.misjudged.items():
        text = f"dead letters with the reason {given}, but the bytes are {reason or 'a row of the table'}"
        misjudged.add("dead letters", text, *place)
    findings += misjudged.findings()
    for partition, (_, to) in sides.claimed.items():
        if to > (end := sides.source.end.get(partition, 0)):
            text = f"the topic ends at {end}, the table claims offsets up to {to}"
            findings.append(Finding("coverage", text, partition, ((end, to),)))
    kinds = (
        ("rows with the key of another row", sides.doubled),
        ("rows of keys that later records have changed or deleted", sides.stale),
    )
    for text, found in kinds:
        for (file, partition), offsets in found.items():
            findings.append(Finding("keys", text, partition, ranges(offsets), (file,)))
    findings += _totals(sides)
    for each in (sides.skips, sides.filters, sides.left_out):
        findings += each.findings(sides.spans, compacted=sides.compacted)
    return findings


def _unverifiable(sides: Sides) -> list[Check]:
    """Parts that cannot be proved any more; they keep the table from being called proved."""
    begins = sides.source.log_start
    left_out = sum(sides.spans[p][0] - start for p, (start, _) in sides.claimed.items())
    expired = sum(max(0, min(to, begins.get(p, 0)) - start) for p, (start, to) in sides.claimed.items())
    before = sum(
        max(0, start - begins.get(p, 0))
        for p, (start, _) in sides.claimed.items()
        if not sides.claim.known_from_birth and start != sides.forgotten.since.get(p)
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
        OTHERS: (
            sides.main.rows_left_out,
            "rows",
            "the table was moved since: --from-cluster proves them"
            if sides.claim.position.moved
            else "the topic was created again since",
        ),
        "compacted": (sides.compacted_away, "rows", "Kafka has compacted their records away"),
        "order": (
            sides.fold.ambiguous if sides.fold else 0,
            "keys",
            "several partitions hold them, and tombstones of them",
        ),
        "duplicates": (
            min(_untold(sides), sides.emptied) if isinstance(sides.fold, Firsts) else 0,
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
    return sides.claim.totals.deduplicated - sides.duplicates


def _totals(sides: Sides) -> list[Finding]:
    """The ledgers' sums against the present rows, also for records that Kafka no longer holds."""
    if not sides.claim.known_from_birth:
        return []
    totals, letters = sides.claim.totals, sides.dead_letters
    findings = []
    expected = totals.rows_appended - totals.rows_deleted - (sides.aged.rows if sides.aged else 0)
    # Rounds with a key may have deleted rows of an earlier topic, which do not count here.
    mixed = isinstance(sides.fold, Fold | Versions) and sides.claim.mixed
    if sides.totals is None and not mixed and sides.total != expected:
        text = f"the table has {sides.total} rows, its ledgers say {expected}"
        findings.append(Finding("totals", text))
    complete = sides.spans == sides.claimed and not sides.compacted
    if isinstance(sides.fold, Firsts) and complete and not 0 <= _untold(sides) <= sides.emptied:
        text = f"{sides.duplicates} records are duplicates, the ledgers say {totals.deduplicated}"
        findings.append(Finding("totals", text))
    if sides.aged_dead_letters is not None:
        lacking = sum(totals.rejected.values()) - sum(letters.by_reason.values())
        if lacking != sides.aged_dead_letters.rows:
            text = f"{lacking} dead letters are missing, and retention deleted {sides.aged_dead_letters.rows}"
            findings.append(Finding("totals", text))
    elif letters.by_reason != totals.rejected:
        text = f"the dead letters are {dict(letters.by_reason)}, the ledgers say {totals.rejected}"
        findings.append(Finding("totals", text))
    # A dead letter without its redrive mark counts twice: as redriven and as present.
    settled = totals.redriven + totals.overtaken
    if not settled <= letters.came_back <= settled + totals.present:
        text = (
            f"{letters.came_back} dead letters came back, the ledgers of the redrives say {totals.redriven},"
            f" {totals.overtaken} that were overtaken and {totals.present} that were in the table before"
        )
        findings.append(Finding("redriven", text))
    return findings
