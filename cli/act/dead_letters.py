"""`calve dead-letters`: list, show and export dead letters, and have the job read them again."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pyiceberg.table import Table
from typer.core import TyperGroup

from calve.errors import CalveError
from calve.names import TableName
from calve.requests.redrive import Request, Result
from calve.schema.columns import SEALED
from cli import dead_letters as stored
from cli.act.requests import Kind, OpenedTable, YesOption
from cli.config import Common, TableArgument
from cli.console import Console, ago

REDRIVE = Kind(Request, "redrive of", Result.of, "nothing was redriven in")
SHOWN_GROUPS = 40
SHOWN_PARTITIONS = 3


class TableFirst(TyperGroup):
    """`calve dead-letters TABLE` is `calve dead-letters list TABLE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["list", *args]
        return super().parse_args(ctx, args)


dead_letters = typer.Typer(
    cls=TableFirst,
    help="Show dead letters; send them back after a fix.",
    no_args_is_help=True,
    subcommand_metavar="TABLE | COMMAND [ARGS]...",
)
RedrivenOption = Annotated[
    bool, typer.Option("--redriven", help="Redriven dead letters instead of open ones.")
]
PlaceArgument = Annotated[
    str, typer.Argument(metavar="PARTITION:OFFSET", help="The place of the record in its topic.")
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="File to write; it must not exist.")]


@dead_letters.command()
def redrive(
    table: TableArgument,
    *,
    filters: stored.Filters,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have the job read dead letters again, after a fix.

    Records that decode now enter the table, each once. The others stay dead letters. Ctrl-C ends the waiting, not the redrive.

    Example:
      calve dead-letters redrive stock_trades --schema-id 7
    """
    console, now = given.console, datetime.now(UTC)
    selection = filters.selection(now)
    opened = OpenedTable.open(table, given)
    name = opened.name
    opened.refuse_second(REDRIVE)
    groups = stored.grouped(opened.dead_letters, selection) if opened.dead_letters else []
    if not groups:
        console.say(f"{name} has no open dead letters{selection.words}: there is nothing to redrive.")
        console.document({"table": str(name), **asdict(Result("", now.isoformat()))})
        return
    console.table(f"to redrive {name}", [each.line for each in groups])
    request = Request(
        id=uuid.uuid4().hex,
        at=now.isoformat(timespec="seconds"),
        reason=selection.reason,
        schema_id=selection.schema_id,
        since=selection.since.isoformat() if selection.since else None,
        until=selection.until.isoformat() if selection.until else None,
    )
    question = f"Read {sum(each.dead_letters for each in groups):,} dead letters again?"
    result = opened.ask(REDRIVE, request, question=question, look_at="what is selected", yes=yes)
    figures = {"selected": f"{result.selected:,} dead letters", "in the table now": f"{result.redriven:,}"}
    if result.present:
        figures["there already"] = f"{result.present:,}"
    if result.overtaken:
        figures["overtaken"] = f"{result.overtaken:,}, by later records of their keys"
    dead = ", ".join(f"{number:,} {reason}" for reason, number in sorted(result.refused.items()))
    console.panel(f"redrive of {name}", figures | {"still dead": dead or "none"})


@dead_letters.command("list")
def listed(
    table: TableArgument,
    *,
    filters: stored.Filters,
    redriven: RedrivenOption = False,
    given: Common,
) -> None:
    """Count dead letters by reason, and show where they lie.

    A line for each reason and schema id: when they were rejected, in which partitions and offsets.

    Example:
      calve dead-letters stock_trades --since 2h
    """
    console, now = given.console, datetime.now(UTC)
    selection = filters.selection(now, redriven=redriven)
    opened = OpenedTable.open(table, given)
    name, rejected = opened.name, opened.dead_letters
    groups = stored.grouped(rejected, selection) if rejected else []
    others = replace(selection, redriven=not redriven)
    rest = stored.count(rejected, others) if rejected else 0
    if not rest:
        left_over = ""
    elif redriven:
        left_over = f"{rest:,} are open."
    else:
        left_over = f"{rest:,} were redriven: --redriven lists them."
    number = sum(each.dead_letters for each in groups)
    open_, back = (rest, number) if redriven else (number, rest)
    console.document(
        {
            "table": str(name),
            "dead_letters": open_,
            "redriven": back,
            "groups": [each.document() for each in groups],
        }
    )
    if not groups:
        console.say(f"{_nothing(name, selection)} {left_over}".rstrip())
        return
    several = len({(each.cluster_id, each.topic_id) for each in groups}) > 1
    shown = [_line(each, now, topic=several) for each in groups[:SHOWN_GROUPS]]
    console.table(f"{'redriven' if redriven else 'dead letters'} {name}", shown)
    if left := groups[SHOWN_GROUPS:]:
        more = sum(each.dead_letters for each in left)
        console.say(f"{more:,} more in {len(left):,} groups: --output json lists them all")
    if left_over:
        console.say(left_over)


@dead_letters.command()
def show(table: TableArgument, place: PlaceArgument, *, given: Common) -> None:
    """Show one dead letter with everything.

    Also its key, its value and its headers, unless they are encrypted.

    Example:
      calve dead-letters show stock_trades 3:1841
    """
    wanted = stored.Place.of(place)
    opened = OpenedTable.open(table, given)
    console, name = opened.console, opened.name
    batches = stored.read(opened.dead_letters, wanted.expression) if opened.dead_letters else ()
    held = [dead_letter for batch in batches for dead_letter in stored.dead_letters_in(batch)]
    if not held:
        raise CalveError(
            f"{name} has no dead letter in partition {wanted.partition} at offset {wanted.offset}",
            fix=f"calve dead-letters {table} shows where they lie",
        )
    held.sort(key=lambda each: (each["topic_id"], each["attempt"]))
    for each in held:
        _show(console, str(name), each)
    console.document({"table": str(name), "dead_letters": [stored.document(each) for each in held]})


@dead_letters.command()
def export(
    table: TableArgument,
    file: FileArgument,
    *,
    filters: stored.Filters,
    redriven: RedrivenOption = False,
    given: Common,
) -> None:
    """Write dead letters to a file, as JSON lines.

    The record can be rebuilt from its line. Key, value and the headers' values are base64; those of
    encrypted dead letters stay encrypted. Only you may read the file.

    Example:
      calve dead-letters export stock_trades letters.jsonl --reason malformed
    """
    console = given.console
    selection = filters.selection(datetime.now(UTC), redriven=redriven)
    if file.exists():
        raise _taken(file)
    opened = OpenedTable.open(table, given)
    name, rejected = opened.name, opened.dead_letters
    count = _write(file, rejected, selection) if rejected else 0
    written = str(file) if count else None
    size = file.stat().st_size if count else 0
    console.document({"table": str(name), "file": written, "dead_letters": count, "size_bytes": size})
    if count:
        console.say(f"{count:,} dead letters of {name} are in {file}, {size:,} bytes.")
    else:
        console.say(f"{_nothing(name, selection)} No file was written.")


def _write(file: Path, rejected: Table, selection: stored.Selection) -> int:
    """Write the selected dead letters. An unfinished or empty file is removed."""
    count = 0
    try:
        file.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise _taken(file) from None
    except OSError as error:
        raise CalveError(
            f"{file} cannot be written: {error.strerror}", fix="name a file in a folder that exists"
        ) from None
    try:
        with file.open("w", encoding="utf-8") as out:
            for batch in stored.read(rejected, selection.within(rejected)):
                for each in stored.dead_letters_in(batch):
                    out.write(json.dumps(stored.document(each), ensure_ascii=False) + "\n")
                    count += 1
    except BaseException:
        file.unlink()
        raise
    if not count:
        file.unlink()
    return count


def _taken(file: Path) -> CalveError:
    return CalveError(f"{file} exists already", fix="name another file, or remove this one")


def _nothing(name: TableName, selection: stored.Selection) -> str:
    which = "redriven dead letters" if selection.redriven else "dead letters"
    return f"{name} has no {which}{selection.words}."


def _line(group: stored.Group, now: datetime, *, topic: bool) -> dict[str, object]:
    places = [str(each) for _, each in sorted(group.places.items())]
    where = "  ".join(places[:SHOWN_PARTITIONS])
    if (more := len(places) - SHOWN_PARTITIONS) > 0:
        where += f"  +{more:,} more"
    return ({"topic_id": group.topic_id} if topic else {}) | {
        **group.line,
        "first": ago(group.first, now),
        "last": ago(group.last, now),
        "partition:offsets": where,
    }


def _show(console: Console, name: str, found: stored.DeadLetter) -> None:
    console.panel(f"dead letter of {name}", stored.facts(found))
    if found.get(SEALED):
        console.say(
            "Key, value and the headers' values are encrypted: only the job decrypts them, for a redrive."
        )
        return
    parts = [(part, "", found[part]) for part in ("key", "value")]
    for number, header in enumerate(found["headers"] or (), start=1):
        # A header's key is a producer's text, which may hold anything.
        parts.append((f"header {number}", f"{header['key']!r}\n", header["value"]))
    for title, above, data in parts:
        size = "" if data is None else f", {len(data):,} bytes"
        console.quote(f"{title}{size}", above + stored.preview(data))
