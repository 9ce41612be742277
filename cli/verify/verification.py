"""`verify`: the claim, the three passes, and their checks."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN, TableName
from calve.schema.columns import UNDELIVERED
from calve.table.protocol import TopicState
from calve.table.summary import LEARNT
from cli import lake
from cli.kafka import Cluster
from cli.verify.checks import checks_of, digests_of, findings_of
from cli.verify.claim import Bounds, Claim, read_claim
from cli.verify.compare import explain
from cli.verify.counts import LeftOut, Skips
from cli.verify.dead_letters import DeadLetterRows, read_dead_letters
from cli.verify.findings import Check, Finding, Verification
from cli.verify.keyed.aggregate import Totals
from cli.verify.keyed.deduplicate import Firsts
from cli.verify.keyed.history import Versions
from cli.verify.keyed.modes import mode_of
from cli.verify.keyed.upsert import Fold
from cli.verify.reading import DecoderByRound, Decoders, filters_of
from cli.verify.rows import Aged, Forgotten, MainRows
from cli.verify.sides import Sides, made_of, read_table, read_topic
from cli.verify.steps.queries import Queries, blanks_in
from cli.verify.steps.shape import shapes_of
from cli.verify.topic import Reader, Sources

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from cli.progress import Progress


def verify(name: TableName, sources: Sources, progress: Progress) -> Verification:
    """Prove that the table and its dead letters are exactly what the topic makes, offset by offset, or report the differences.

    Reads the topic and the table whole, neither through Spark nor with the job's code. If this code itself fails, the result says
    so.

    Raises:
        CalveError: there is no such table or topic, or the table has no position.
        Retryable: the cluster, the registry, the catalog or the object store does not answer.
    """
    try:
        return _verify(name, sources, progress)
    except CalveError:
        raise
    except Exception as error:  # noqa: BLE001 any other error is a fault of this code
        ours = [
            each for each in traceback.extract_tb(error.__traceback__) if "cli" in Path(each.filename).parts
        ]
        where = f"{Path(ours[-1].filename).name} line {ours[-1].lineno}"
        # The error's text may hold a value of a record.
        return Verification(str(name), "", (), (), fault=f"{type(error).__name__} in {where}")


def _verify(name: TableName, sources: Sources, progress: Progress) -> Verification:
    began = time.monotonic()
    table = lake.load(sources.catalog, name)
    if table is None:
        raise CalveError(
            f"table {name} does not exist yet: no round has committed",
            fix=f"calve status {name.table} says whether the job waits, was refused or has failed",
        )
    if SYSTEM_COLUMN not in table.schema().column_names:
        raise CalveError(f"table {name} has no column {SYSTEM_COLUMN}, so no row has an offset to compare")
    cluster = Cluster(sources.kafka, sources.region)
    claim, ledgers, findings = read_claim(table, cluster.id)
    topic_name = claim.position.topic
    topic = cluster.topics({topic_name}).get(topic_name)
    if topic is None:
        raise CalveError(f"the cluster has no topic {topic_name}, so the table cannot be verified")
    if topic.key != claim.topic and claim.to:
        text = f"topic {topic.name} is {topic.key} now; the table was read from {claim.topic}, which is gone"
        check = Check("topic", "failed", {"table": str(claim.topic), "cluster": str(topic.key)})
        return Verification(str(name), topic.name, (ledgers, check), (*findings, Finding("topic", text)))
    with Queries() as queries:
        topic = replace(topic, compacted=cluster.is_compacted(topic.name))
        sides, found = _compare(table, claim, topic, sources, queries, progress)
    return Verification(
        table=str(name),
        topic=topic.name,
        checks=(ledgers, *checks_of(sides, found)),
        findings=(*findings, *found),
        digests=digests_of(sides),
        seconds=round(time.monotonic() - began, 1),
    )


def _compare(
    table: Table, claim: Claim, topic: TopicState, sources: Sources, queries: Queries, progress: Progress
) -> tuple[Sides, list[Finding]]:
    """The passes over both sides, in order, and the faults."""
    dead_letters = lake.load(sources.catalog, TableName(*table.name()).dead_letters)
    mode = mode_of(claim, table.schema(), sources.key.column if sources.key else None)
    newest = mode if mode and mode.newest else None
    if newest and claim.topic != claim.position.newest:
        text = f"records of topic {claim.position.newest} may have replaced rows of {topic.key}"
        raise CalveError(f"table {'.'.join(table.name())} cannot be verified: {text}")
    if mode and mode.versions and claim.mixed:
        text = f"topic {topic.name} was made again, and a version does not name its topic"
        raise CalveError(f"table {'.'.join(table.name())} cannot be verified: {text}")
    aged, forgotten = Aged.of(table, claim.topic), Forgotten.of(table.properties, claim.topic)
    main = MainRows(table, others=None if mode and mode.totals else claim, mode=newest, aged=aged)
    letters = None if dead_letters is None else DeadLetterRows(dead_letters, claim, sources.masking)
    claimed = _claimed(claim, main, letters, forgotten)

    rounds = [each for each in claim.rounds if each.topic == claim.topic]
    born, registry = claim.known_from_birth, sources.open_registry()
    shapes = shapes_of(table, main.of_records, mode, sources, topic.name, queries)
    filters = filters_of(sources, topic.name, registry, rounds, complete=born)
    changes, learnt = mode.changes if mode else None, table.properties.get(LEARNT)
    decoders = Decoders(sources, topic.name, shapes, registry, filters, changes, learnt)
    alone = sources.value.framed and sources.key is None and not sources.steps
    alike = alone and not any(each.read_with for each in rounds)
    decoder = DecoderByRound(rounds, decoders.of, alike=alike)

    known = decoder.provable_from()
    lowest = {p: max(topic.log_start.get(p, 0), known.get(p, 0)) for p in claimed}
    spans = {p: (min(max(a, lowest[p]), b), b) for p, (a, b) in claimed.items()}
    dead = read_dead_letters(letters, claimed, spans)
    decoder.redrives, decoder.redriven = claim.redrives, dead.redriven
    totals = Totals(mode.totals, claim, dead.redriven) if mode and mode.totals else None
    reader = Reader(topic, sources.kafka, sources.region)
    reader.bounded |= {
        p for p, given in dead.reasons.items() if not set(UNDELIVERED).isdisjoint(given.values())
    }
    sides = Sides(
        decoder=decoder,
        dead_letters=dead,
        claim=claim,
        source=topic,
        claimed=claimed,
        spans=spans,
        main=main,
        skips=Skips(rounds, born, filters.framing),
        filters=filters,
        left_out=LeftOut(rounds),
        mode=mode,
        totals=totals,
        forgotten=forgotten,
        aged=aged,
        aged_dead_letters=Aged.of(dead_letters, claim.topic),
        kept=[] if topic.compacted else None,
    )
    if newest and newest.versions:
        blanks = {} if newest.changes is None else blanks_in(main.of_records)
        by_column = newest.order_by is not None
        sides.fold = Versions(by_column=by_column, blanks=blanks, forgotten=forgotten.rows)
    elif newest:
        blanks = {} if newest.changes is None else blanks_in(main.columns)
        ordered = newest.order_by is not None
        sides.fold = Fold(rounds, ordered=ordered, blanks=blanks, forgotten=forgotten.rows)
    elif mode and mode.first:
        shape = shapes(None)
        several = shape is not None and shape.explodes
        sides.fold = firsts = Firsts(mode.window_us, claim, dead.redriven, several=several)
        for held, own in main.keys(mode):
            firsts.hold(held, own=own)
        for span in forgotten.rows.within(sides.readable):
            for records in reader.read(span):
                firsts.remember(made_of(records, decoder, mode)[0])

    expected = sum(max(0, to - start) for start, to in sides.readable.values())
    with progress.task("reading the topic", total=expected, unit="records") as task:
        read_topic(sides, reader, task.update)
    with progress.task("reading the table", total=main.count, unit="records") as task:
        if totals is None:
            read_table(sides, task.update)
        else:
            whole = spans == claimed and not sides.compacted
            totals.compare(main, task.update, read=sides.records, whole=whole)
            sides.total = totals.rows
    found = [*explain(sides, reader), *findings_of(sides), *(totals.findings if totals else ())]
    return sides, found


def _claimed(
    claim: Claim, main: MainRows, dead_letters: DeadLetterRows | None, forgotten: Forgotten
) -> dict[int, Bounds]:
    """The claimed offsets; if the history is cut, from the lowest that the table holds, or from its known beginning."""
    start = dict(claim.start)
    if not claim.known_from_birth:
        for lowest in (main.lowest(), dead_letters.lowest() if dead_letters else {}, forgotten.since):
            for partition, offset in lowest.items():
                start[partition] = min(offset, start.get(partition, offset))
    return {p: (min(start.get(p, to), to), to) for p, to in claim.to.items()}
