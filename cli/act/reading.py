"""What of its topic a table reads: `calve pause`, `resume`, `rollback`, `rewind`, `backfill` and `release`.

A pause is a property of the table that its job respects before each round; the others are requests, answered between two rounds.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from calve.config.job import Start
from calve.config.job import Table as Settings
from calve.errors import CalveError, ConfigError
from calve.names import TABLE_NAME
from calve.outputs.job_status import TableState
from calve.requests.requests import Entry, Pause, Release, outdated
from calve.requests.time_travel import (
    BackfillRequest,
    Journey,
    RollbackRequest,
    What,
    at_moment,
    before_offsets,
    journey,
)
from calve.table.position import Offsets
from calve.table.protocol import Commit, nearest_position
from calve.table.summary import PAUSED, ROUND
from cli import lake
from cli.act.requests import Kind, OpenedTable, Unanswered, YesOption, person, stamp
from cli.config import Common, TableArgument, parse_time
from cli.console import Console

SHOWN = 20
TRAVEL = Kind(
    RollbackRequest,
    "rollback or rewind of",
    Entry.of,
    "nothing was changed in",
    fix="choose another place, then ask again",
)
RELEASE = Kind(Release, "release of", Release.answer, "nothing was changed in")
BACKFILL = Kind(BackfillRequest, "backfill of", Entry.of, "no rows were replaced in", slow=True)
SNAPSHOT = re.compile(r"\d{8,19}")
PLACES = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*")

MomentOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="A snapshot's id, or a moment: 2h, 2026-01-01T00:00:00Z. Without it the snapshots are listed.",
    ),
]
PlaceOption = Annotated[
    str,
    typer.Option(
        "--to",
        help="The first record to read again: PARTITION:OFFSET, several with commas, or a moment: 2h.",
    ),
]
IntoOption = Annotated[
    str | None, typer.Option("--into", help="Into a new table of this name, beside the one there is.")
]
HELP = "PARTITION:OFFSET, several with commas, or a moment of the records: 2h, 2026-01-01T00:00:00Z."

FromOption = Annotated[str, typer.Option("--from", help=f"The first records. {HELP}")]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to", help=f"The end of the range, excluded; without it the position of the table. {HELP}"
    ),
]


REASON_LENGTH = 300
ReasonOption = Annotated[str | None, typer.Option("--reason", "-r", help="Why: later readers see it.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", "-u", help="When it ends by itself: 2026-01-01T00:00:00Z.")
]


def pause(
    table: TableArgument,
    *,
    reason: ReasonOption = None,
    until: UntilOption = None,
    given: Common,
) -> None:
    """Have the job stop reading a table's topic after its running round, until `calve resume`, also over restarts.

    The job keeps running and answers requests. Records wait in Kafka: check the topic's retention. Ctrl-C ends the waiting only.

    Example:
      calve pause stock_trades --reason "schema under repair"
    """
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    console = opened.console
    if reason is not None and len(reason) > REASON_LENGTH:
        raise ConfigError(f"--reason is longer than {REASON_LENGTH} characters", fix="shorten it")
    if until is not None:
        until = _coming(until, now).isoformat()
    held = Pause(uuid.uuid4().hex, stamp(now), person(), reason, until)
    entry = Entry(held.id, held.at, "pause", held.words, held.by)
    opened.change({PAUSED: held.to_json(), **entry.property()}, remove=outdated(opened.main.properties))
    applied = _is_applied(opened, held.id, lambda state: state.code == held.id)
    console.document({"table": str(opened.name), **asdict(held), "heeded": applied})
    then = (
        f"Go on with: calve resume {table}" if applied else "No job runs now; the next one will respect it."
    )
    console.say(f"{opened.name} is paused {held.words}. {then}")


def resume(table: TableArgument, *, given: Common) -> None:
    """Have the job read a paused table again, from its position.

    Example:
      calve resume stock_trades
    """
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    console = opened.console
    held = Pause.of(opened.main.properties, now)
    if held is None:
        console.say(f"{opened.name} is not paused: there is nothing to resume.")
        console.document({"table": str(opened.name), "resumed": False})
        return
    entry = Entry(uuid.uuid4().hex, stamp(now), "resume", f"was paused {held.words}", person())
    opened.change(entry.property(), remove=[PAUSED, *outdated(opened.main.properties)])
    applied = _is_applied(opened, entry.id, lambda state: state.state != "paused")
    console.document({"table": str(opened.name), "resumed": True, "heeded": applied})
    effect = "is read again" if applied else "will be read again by the next job, as none runs now"
    console.say(f"{opened.name} {effect}; it was paused {held.words}.")


def _is_applied(opened: OpenedTable, id: str, applied: Callable[[TableState], bool]) -> bool:
    """True once a job reports in the table that it has applied the change; False if no job runs."""
    title = f"waiting for the job of {opened.name}"
    try:
        return opened.wait(title, lambda: applied(lake.state_of(opened.main)) or None, id=id)
    except Unanswered:
        return False


def _coming(text: str, now: datetime) -> datetime:
    with suppress(ValueError):
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None and found > now:
            return found
    fix = "write it as 2026-01-01T00:00:00Z, with its time zone"
    raise ConfigError(f'--until: "{text}" is no moment to come', fix=fix)


def rollback(
    table: TableArgument,
    *,
    to: MomentOption = None,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have the job take a table back to an earlier snapshot, and read again what the table had read since.

    The calve.yaml and the registry of now decide on the rows of these records. Pause the table first to change those in between.
    Ctrl-C ends the waiting, not the rollback.

    Examples:
      calve rollback stock_trades
      calve rollback stock_trades --to 2h
    """
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    line = lake.ancestors(opened.main)
    if to is None:
        _list(opened.console, line)
        return
    snapshot = int(to) if SNAPSHOT.fullmatch(to) else _at(line, to, now, table).id
    _go_back(opened, journey(line, snapshot), "rollback", now, yes=yes)


def rewind(
    table: TableArgument,
    *,
    to: PlaceOption,
    into: IntoOption = None,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have the job read a topic again from a place on, and replace the rows and dead letters from there.

    The table goes back to its newest snapshot that holds nothing from there on. Ctrl-C ends the waiting, not the rewind.

    Examples:
      calve rewind stock_trades --to 0:1500,1:1480
      calve rewind stock_trades --to 2h --into trades_again
    """
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    if into is not None:
        _say_entry(opened.console, opened.settings, to, into, now)
        return
    line = lake.ancestors(opened.main)
    if PLACES.fullmatch(to):
        position = nearest_position(line)
        if position is None or not position.offsets:
            raise CalveError(f"{opened.name} has read nothing", fix="there is nothing to read again")
        found = _found(before_offsets(line, position.newest, _places(to)), table, to)
    else:
        found = _at(line, to, now, table)
    _go_back(opened, journey(line, found.id), "rewind", now, yes=yes)


def _go_back(opened: OpenedTable, way: Journey, what: What, now: datetime, *, yes: bool) -> None:
    say, name = opened.console.say, str(opened.name)
    opened.refuse_second(TRAVEL)
    if not way.left:
        say(f"{name} is at snapshot {way.to.id} already: there is nothing to do.")
        opened.console.document({"table": name, "snapshot": way.to.id, "offsets": 0})
        return
    gone, topic, emit = way.ledger, opened.settings.topic, opened.settings.emit
    at = datetime.fromtimestamp(way.to.committed_at, UTC).isoformat(timespec="seconds")
    say(f"Main goes back to snapshot {way.to.id} of {at}, over {len(way.left)} snapshots.")
    say(f"{way.reread:,} offsets of topic {topic} are read again, by today's schemas and calve.yaml.")
    say(
        f"Until they are, readers miss {gone.rows_appended:,} rows that were added since, and see {gone.rows_deleted:,} that "
        "were deleted or replaced."
    )
    if gone.dead_lettered:
        say(f"{gone.dead_lettered:,} dead letters go; their records are judged again.")
    if gone.redriven:
        say(f"{gone.redriven:,} dead letters that came back since are open again: redrive them once more.")
    if gone.lost:
        say(f"{gone.lost:,} offsets that were lost before they could be read stay lost.")
    if way.others:
        say(f"{way.others:,} commits of others are undone, deletions by hand among them.")
    if emit:
        say(f"Rows that are read again are written to topic {emit.topic} a second time.")
    say("Announcements of the commits that follow come as of new ones; stored exports stay as they are.")
    request = RollbackRequest(uuid.uuid4().hex, stamp(now), person(), what, way.to.id)
    question, more = f"Take {name} back to snapshot {way.to.id}?", {"snapshot": way.to.id}
    entry = opened.ask(TRAVEL, request, question=question, look_at="what will happen", yes=yes, more=more)
    say(f"{name}: {entry.told}.")


def _at(line: Sequence[Commit], to: str, now: datetime, table: str) -> Commit:
    return _found(at_moment(line, parse_time(to, now, "--to").timestamp()), table, to)


def _found(commit: Commit | None, table: str, to: str) -> Commit:
    if commit is None:
        raise CalveError(
            f"the history of {table} does not go back to {to}: older snapshots have expired",
            fix=f"read the topic into a table beside it: calve rewind {table} --to {to} --into NAME",
        )
    return commit


def _list(console: Console, line: Sequence[lake.Snapshot]) -> None:
    found = []
    for index, each in enumerate(line[:SHOWN]):
        position = nearest_position(line[index:])
        newest = (position.of(position.newest) if position else None) or {}
        offsets = " ".join(f"{partition}:{offset}" for partition, offset in sorted(newest.items()))
        found.append(
            {
                "snapshot": str(each.id),
                "at": each.at.isoformat(timespec="seconds"),
                "by": "calve" if ROUND in each.summary else each.operation or "others",
                "rows": each.rows,
                "next_offsets": offsets or ("none read" if position else "not known: no way back to it"),
            }
        )
    console.table("snapshots", found)
    console.document({"snapshots": found, "more": max(0, len(line) - SHOWN)})


def _places(text: str) -> Offsets:
    """Next offset by partition, of `0:12,1:7`."""
    pairs = (each.split(":") for each in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def _say_entry(console: Console, settings: Settings, to: str, into: str, now: datetime) -> None:
    """Show the entry to add to calve.yaml: the job takes its tables from there, so a request could only repeat it."""
    name = settings.name
    if not TABLE_NAME.fullmatch(into):
        raise ConfigError(f'--into: "{into}" is no name of a table', fix="use a-z, 0-9 and _")
    if PLACES.fullmatch(to):
        offsets = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(_places(to).items()))
        start = f"{{offsets: {{{offsets}}}}}"
    else:
        start = f"{{timestamp: {parse_time(to, now, '--to').isoformat(timespec='seconds')}}}"
    entry = f"tables:\n  {into}:\n    topic: {settings.topic}\n    start: {start}"
    console.say(
        f"Add this to calve.yaml, with what else table {name} has there, then deploy it or restart the job:"
    )
    console.say(entry)
    console.say(f"{name} stays as it is. Partitions without a start offset begin at their first record.")
    console.document({"table": into, "topic": settings.topic, "calve_yaml": entry})


def backfill(
    table: TableArgument,
    *,
    start: FromOption,
    to: ToOption = None,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have the job read a range of records again, and replace the rows that they made.

    For a table whose every record is a row, once a schema or a step has been corrected. Readers see the old rows, or all the new
    ones. Ctrl-C ends the waiting, not the backfill.

    Example:
      calve backfill stock_trades --from 0:1500,1:1480 --to 0:9000,1:9100
    """
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    opened.refuse_second(BACKFILL)
    first = _end(start, now, "--from")
    end = Start("timestamp", round(now.timestamp() * 1000)) if to is None else _end(to, now, "--to")
    topic, emit, say = opened.settings.topic, opened.settings.emit, opened.console.say
    say(f"Records of topic {topic} in this range are read again, and their rows replaced in one commit.")
    say("A record that makes a row only now, or made one only before, changes nothing.")
    say("Dead letters stay; stored exports stay as they are.")
    if emit:
        say(f"The new rows are written to topic {emit.topic}.")
    request = BackfillRequest(uuid.uuid4().hex, stamp(now), person(), first, end)
    question = f"Replace these rows of {opened.name}?"
    entry = opened.ask(BACKFILL, request, question=question, look_at="what will happen", yes=yes)
    say(f"{opened.name}: {entry.told}.")


def _end(text: str, now: datetime, option: str) -> Start:
    if PLACES.fullmatch(text):
        return Start("offsets", offsets=_places(text))
    return Start("timestamp", round(parse_time(text, now, option).timestamp() * 1000))


def release(table: TableArgument, *, yes: YesOption = False, given: Common) -> None:
    """Have the job give a table up, and say at which offsets another writer goes on.

    One commit removes every property and tag of calve. Rows and history stay. Remove the table from calve.yaml afterwards.

    Example:
      calve release stock_trades
    """
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    name, say = opened.name, opened.console.say
    opened.refuse_second(RELEASE)
    say(
        f"The job reads topic {opened.settings.topic} no more, and forgets table {name}: pauses, requests, answers, totals."
    )
    if opened.dead_letters is not None:
        say(
            f"Dead letters stay in {name.dead_letters}. Redrive them before: they cannot come back afterwards."
        )
    opened.console.consent(f"Release {name}?", yes=yes, fix="look at what will happen, then add --yes")
    request = Release(uuid.uuid4().hex, stamp(now), person())
    opened.leave(RELEASE, request)
    answer = opened.answer(RELEASE, request)
    if answer.problem:
        raise RELEASE.refusal(name, answer.problem)
    line = lake.ancestors(opened.main)
    position = nearest_position(line)
    topic = position.newest if position and position.offsets else None
    offsets = (position.of(topic) if position and topic else None) or {}
    say(f"{name} is released, with snapshot {line[0].id}. The next record of each partition is:")
    opened.console.table("offsets", [{"partition": p, "offset": o} for p, o in sorted(offsets.items())])
    say(f"Remove {table} from calve.yaml and deploy: until then its job says `not_ours`.")
    opened.console.document(
        {
            "table": str(name),
            "snapshot": str(line[0].id),
            "metadata_location": opened.main.metadata_location,
            "topic": opened.settings.topic,
            "topic_id": topic and topic.topic_id,
            "cluster_id": topic and topic.cluster_id,
            "offsets": {str(p): o for p, o in sorted(offsets.items())},
        }
    )
