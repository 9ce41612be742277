"""`verify`: the claim, the three passes, and the checks that come out of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calve.columns import UNDELIVERED
from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN, TableName
from cli import lake
from cli.kafka import Cluster, client_properties
from cli.verify.aged import Aged
from cli.verify.blanks import blanks_in
from cli.verify.checks import Sides, checks_of, digests_of, findings_of
from cli.verify.claim import Claim, Round, read_claim
from cli.verify.compare import TableSide, read_table
from cli.verify.explain import Explainer
from cli.verify.findings import Check, Finding, Verification
from cli.verify.firsts import Firsts, Order
from cli.verify.fold import Fold
from cli.verify.forgotten import Forgotten
from cli.verify.left_out import LeftOut
from cli.verify.letters import Letters, Span, read_letters
from cli.verify.modes import Mode, mode_of
from cli.verify.queries import Queries
from cli.verify.rows import LetterRows, MainRows, places_marked_by
from cli.verify.seals import Seals
from cli.verify.shape import Shape, shapes_of
from cli.verify.skips import Skips
from cli.verify.sources import Sources, reading_of
from cli.verify.topic import Reader, is_compacted
from cli.verify.topic_side import TopicSide, made_of, read_topic
from cli.verify.totals import Totals

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from cli.kafka import Topic
    from cli.progress import Progress


def verify(name: TableName, sources: Sources, progress: Progress) -> Verification:
    """Prove that the table and its dead letters are what the topic says, offset by offset, or say what is not.

    Reads the topic and the table whole, neither through Spark nor with the engine's code. Where that fails for a fault of this
    code, the answer says so.

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
        # What the error says may hold a value of a record.
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
        raise CalveError(
            f"table {name} has no column {SYSTEM_COLUMN}: its rows cannot be told apart by offset"
        )
    letters = lake.load(sources.catalog, name.dead_letters)
    claim, ledgers, findings = read_claim(table)
    topic = _topic(claim, sources)
    if topic.key != claim.topic and claim.to:
        return _other_topic(name, claim, topic, ledgers, findings)
    with Queries() as queries:
        sides, found = _compare(table, letters, claim, topic, sources, queries, progress)
    return Verification(
        table=str(name),
        topic=topic.name,
        checks=(ledgers, *checks_of(sides, found)),
        findings=(*findings, *found),
        digests=digests_of(sides),
        seconds=round(time.monotonic() - began, 1),
    )


def _topic(claim: Claim, sources: Sources) -> Topic:
    name = claim.position.topic
    found = Cluster(sources.kafka, sources.region).topics({name}).get(name)
    if found is None:
        raise CalveError(f"the cluster has no topic {name}: nothing is left to verify the table against")
    return found


def _other_topic(
    name: TableName, claim: Claim, topic: Topic, ledgers: Check, findings: list[Finding]
) -> Verification:
    text = f"topic {topic.name} is {topic.key} now; the table was read from {claim.topic}, which is gone"
    check = Check("topic", "failed", {"table": str(claim.topic), "cluster": str(topic.key)})
    return Verification(str(name), topic.name, (ledgers, check), (*findings, Finding("topic", text)))


def _compare(
    table: Table,
    letters: Table | None,
    claim: Claim,
    topic: Topic,
    sources: Sources,
    queries: Queries,
    progress: Progress,
) -> tuple[Sides, list[Finding]]:
    """The passes over both sides, in order, and what is wrong."""
    properties = client_properties(sources.kafka, sources.region)
    mode = mode_of(claim, table.schema(), sources.key.column if sources.key else None)
    newest = mode is not None and mode.newest
    totals = Totals(mode.totals, claim) if mode and mode.totals else None
    aged = Aged.of(table, claim.topic)
    main = MainRows(table, others=None if totals else claim, mode=mode if newest else None, aged=aged)
    letter_rows, pending = _letter_rows(letters, claim, Seals(sources.masking))
    forgotten = Forgotten.of(table.properties, claim.topic)
    claimed = _claimed(claim, main, letter_rows, forgotten)
    rounds = [each for each in claim.rounds if each.topic == claim.topic]
    shapes = shapes_of(table, main.columns, mode, sources, topic.name, queries)
    reading = reading_of(
        sources,
        topic.name,
        shapes,
        rounds,
        complete=claim.known_from_birth,
        changes=mode.changes if mode else None,
    )
    lowest = {p: max(topic.log_start.get(p, 0), reading.provable_from.get(p, 0)) for p in claimed}
    spans = {p: (min(max(a, lowest[p]), b), b) for p, (a, b) in claimed.items()}
    reader = Reader(topic, sources.kafka, sources.region)
    dead = read_letters(letter_rows, claimed, spans)
    reader.bounded |= {
        p for p, given in dead.reasons.items() if not set(UNDELIVERED).isdisjoint(given.values())
    }
    decoder = reading.knowing(claim.redrives, dead.redriven)
    readable = {p: (a, min(b, topic.end.get(p, 0))) for p, (a, b) in spans.items()}
    total = sum(max(0, to - start) for start, to in readable.values())
    firsts = None
    if mode and mode.first:
        firsts = _firsts(main, mode, claim, dead, shapes.newest)
        for span in forgotten.rows.within(readable):
            for records in reader.read(span):
                firsts.remember(made_of(records, decoder, mode)[0])
    with progress.task("reading the topic", total=total, unit="records") as task:
        side = TopicSide(
            held={} if is_compacted(topic.name, properties) else None,
            skips=Skips(rounds, claim.known_from_birth, reading.filters.framing),
            filters=reading.filters,
            mode=mode,
            fold=_fold(main, mode, rounds, forgotten) if mode and newest else None,
            firsts=firsts,
            left_out=LeftOut(rounds),
            totals=totals,
            forgotten=forgotten,
            aged=aged,
            aged_letters=Aged.of(letters, claim.topic),
        )
        produced = read_topic(reader, readable, decoder, dead, side, count=task.update)
    side.fetched = len(reader.bounded)
    with progress.task("reading the table", total=main.count, unit="records") as task:
        if totals is None:
            kept = read_table(main, claimed, spans, produced, task.update)
        else:
            whole = spans == claimed and produced.held is None
            totals.compare(main, task.update, read=sum(produced.records.values()), whole=whole)
            kept = TableSide(total=totals.rows)
    sides = Sides(
        claim=claim,
        log_start=topic.log_start,
        end=topic.end,
        claimed=claimed,
        spans=spans,
        main=main,
        letters=dead,
        pending=pending,
        topic=produced,
        table=kept,
    )
    explained = Explainer(
        claim=claim,
        spans=readable,
        reader=reader,
        decoder=decoder,
        main=main,
        letters=dead,
        topic=produced,
        table=kept,
    ).findings()
    return sides, [*explained, *findings_of(sides), *(totals.findings if totals else ())]


def _fold(main: MainRows, mode: Mode, rounds: Sequence[Round], forgotten: Forgotten) -> Fold:
    blanks = {} if mode.changes is None else blanks_in(main.columns)
    return Fold(rounds, mode.order_by is not None, blanks, forgotten.rows)


def _firsts(main: MainRows, mode: Mode, claim: Claim, letters: Letters, shape: Shape) -> Firsts:
    """The keys that the table holds."""
    firsts = Firsts(mode.window_us, Order(claim, letters.redriven), several=shape.explodes)
    for held in main.keys(mode):
        firsts.hold(held)
    return firsts


def _claimed(
    claim: Claim, main: MainRows, letters: LetterRows | None, forgotten: Forgotten
) -> dict[int, Span]:
    """The offsets that the table claims; where its history is cut, from the lowest that it holds, or from where it is known to
    have begun.
    """
    start = dict(claim.start)
    if not claim.known_from_birth:
        for lowest in (main.lowest(), letters.lowest() if letters else {}, forgotten.since):
            for partition, offset in lowest.items():
                start[partition] = min(offset, start.get(partition, offset))
    return {p: (min(start.get(p, to), to), to) for p, to in claim.to.items()}


def _letter_rows(letters: Table | None, claim: Claim, seals: Seals) -> tuple[LetterRows | None, str | None]:
    """The dead letters, and the round of those that main names but that still wait on their branch."""
    if letters is None:
        return None, None
    named = claim.position.dead_letters
    published = {commit.summary.get("calve.round") for commit in lake.ancestors(letters)}
    waiting = named if named and named.round not in published else None
    topic, topic_id = claim.position.topic, claim.topic.topic_id
    if waiting is None or letters.snapshot_by_id(waiting.snapshot) is None:
        return LetterRows(letters, topic=topic, topic_id=topic_id, seals=seals), None
    snapshot = waiting.snapshot
    if waiting.redriven:
        marked = places_marked_by(letters, waiting.round, topic_id=topic_id, snapshot_id=snapshot)
        return LetterRows(letters, topic=topic, topic_id=topic_id, seals=seals, marked=marked), waiting.round
    found = LetterRows(letters, topic=topic, topic_id=topic_id, seals=seals, snapshot_id=snapshot)
    return found, waiting.round
