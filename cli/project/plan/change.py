"""A change of one thing, its values as texts by their keys in calve.yaml, and the consequences for its users. Pure rules."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from calve.config.job import Job, Table
from calve.config.maintenance import Maintenance
from calve.config.publishing import Export
from calve.errors import Suspended
from calve.modes.switch import switch
from calve.schema.columns import Transform
from calve.settings.fields import FIELDS
from cli.console import duration
from cli.project.plan.deployed import DeployedTable

CONTENT = ("table", "time_column", "window", "time_zone", "filter", "group_by", "measures", "csv")
"""Keys of an export that determine its files."""
NOTHING = "-"
KEYS = {field: key for key, field in FIELDS.items()}
KEYS |= {"link_kind": "link.kind", "link_days": "link.days", "max_downloads": "link.max_downloads"}
"""Fields whose keys in calve.yaml have other names."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """One consequence of a change.

    breaking: existing rows, columns, tables or files are deleted, change their meaning, or get nothing new. at: the key below the
    table's entry in calve.yaml for which the job will suspend the table.
    """

    text: str
    breaking: bool = False
    at: tuple[str, ...] | None = None


def waits(table: str) -> Consequence:
    """Of a table that another writer made."""
    return Consequence(f"the job writes nothing to it until `calve adopt {table}`: another writer made it")


def job_consequences(keys: Collection[str]) -> Iterator[Consequence]:
    if _any(keys, "lake.database", "lake.namespace"):
        yield Consequence(
            "its tables are made again in the other database, from the beginning of their topics; the old tables stay,"
            " and no job writes them",
            breaking=True,
        )
    if "kafka.bootstrap_servers" in keys:
        yield Consequence(
            "if they name another cluster, its tables wait until `calve move` proves that topics are copies"
        )
    if "run" in keys:
        yield Consequence("its tables are as fresh as its runs are frequent")
    if "masking" in keys:
        yield Consequence("another key makes other tokens: new rows no longer match old ones", breaking=True)
    yield Consequence("a running job ends its round; the new one goes on from the position of each table")


def table_consequences(
    before: Table | None, after: Table, held: DeployedTable | None, keys: Collection[str]
) -> Iterator[Consequence]:
    """The consequences for a table if these keys change. before: its deployed settings; held: the table in the lake."""
    if held and not held.empty:  # it has read something
        if "mode" in keys:
            yield _of_mode(after, held)
        if "topic" in keys:
            text = "the job will suspend it: its rows are from the other topic"
            yield Consequence(text, breaking=True, at=("topic",))
        if _any(keys, "start"):
            yield Consequence("`start` is for topics that were never read: nothing is read again")
    if _any(keys, "partition_by", "sort_by"):
        yield Consequence("new files are laid out so; existing files stay until they are compacted")
    if "format_version" in keys:
        yield Consequence("a table that exists keeps its version of the format")
    if "job" in keys:
        yield Consequence("one job goes on where the other ends")
    if "steps" in keys:
        yield Consequence("new rows are made so; existing rows stay as they are")
    if before:
        yield from _of_losses(before, after)
        yield from _of_maintenance(before.maintenance, after.maintenance)


def column_consequences(renamed: Iterable[tuple[str, str]], unfilled: Iterable[str]) -> Iterator[Consequence]:
    for old, new in renamed:
        yield Consequence(f"readers of {old} must read {new}", breaking=True)
    for path in unfilled:
        yield Consequence(f"{path} stays, and is null in every new row", breaking=True)


def export_consequences(before: Export, after: Export, keys: Collection[str]) -> Iterator[Consequence]:
    for each in dict.fromkeys((*before.recipients, *after.recipients)):
        if each not in after.recipients:
            yield Consequence(f"{each} gets no more mails", breaking=True)
        elif each not in before.recipients:
            yield Consequence(f"{each} gets a mail from the next run on")
    appended = before.columns and after.columns[: len(before.columns)] == before.columns
    if _any(keys, *CONTENT) or ("columns" in keys and not appended):
        yield Consequence("the content or the format of the next files changes", breaking=True)
    elif "columns" in keys:
        yield Consequence("the next files have more columns, after the present ones")
    if "schedule" in keys:
        yield Consequence("it arrives at other times")
    if "link.kind" in keys and after.link_kind == "console":
        yield Consequence("readers of the next mails must sign in to AWS", breaking=True)
    elif "link.kind" in keys:
        yield Consequence("anyone with a link of the next mails gets the file", breaking=True)


def _of_losses(before: Table, after: Table) -> Iterator[Consequence]:
    if after.on_error != before.on_error and after.on_error == "skip":
        yield Consequence("records that fail to decode are counted, and no longer kept", breaking=True)
    if after.on_data_loss != before.on_data_loss and after.on_data_loss == "continue":
        yield Consequence("offsets that Kafka no longer has are skipped, and counted in the ledger")
    old, new = before.emit, after.emit
    if old and (new is None or new.topic != old.topic):
        yield Consequence(f"topic {old.topic} gets no more rows", breaking=True)
    elif old and new and (new.format, new.key, new.schema_id) != (old.format, old.key, old.schema_id):
        yield Consequence(f"the next records of topic {new.topic} are written otherwise", breaking=True)


def _of_mode(table: Table, held: DeployedTable) -> Consequence:
    """What the job does with existing rows if the mode changes."""
    try:
        kind = switch(table.name, table.name, held.mode, table.mode_note(held.columns))
    except Suspended as refused:
        at = ((table.mode.kind,) if table.mode.key else ()) if refused.code == "mode_changed" else None
        return Consequence(f"the job will suspend it: {refused.message}", breaking=True, at=at)
    text = "the rows stay, and every further record is one: a key may have several"
    if kind == "fold":
        text = "the job deletes the rows that newer records of their key replace, in one commit"
    elif kind == "version":
        text = "the job writes every row again, with the time for which it was valid, in one commit"
    return Consequence(text, breaking=True)


def _of_maintenance(before: Maintenance, after: Maintenance) -> Iterator[Consequence]:
    old, new = before.rows, after.rows
    if new and (old is None or old.column != new.column or new.keep_s < old.keep_s):
        text = f"rows are deleted whose {new.column} is older than {duration(new.keep_s)}"
        yield Consequence(text, breaking=True)
    kept_s = after.dead_letters_s
    if kept_s is not None and (before.dead_letters_s is None or kept_s < before.dead_letters_s):
        yield Consequence(
            f"dead letters are deleted after {duration(kept_s)}, redriven or not", breaking=True
        )
    fewer = after.snapshots_at_most < before.snapshots_at_most
    if fewer or after.snapshots_s < before.snapshots_s:
        text = f"no query or rollback can use snapshots older than {duration(after.snapshots_s)}"
        yield Consequence(f"{text}, or beyond the newest {after.snapshots_at_most}", breaking=True)
    if after.file_bytes != before.file_bytes:
        yield Consequence("files are merged to that size from the next maintenance on")


def _any(keys: Collection[str], *names: str) -> bool:
    """Whether one of the names, or a key below one of them, changes."""
    return any(key == name or key.startswith(f"{name}.") for key in keys for name in names)


@dataclass(frozen=True, slots=True)
class Difference:
    """One key with its deployed and configured value; `-`: nothing."""

    key: str
    deployed: str
    configured: str


def differences(
    deployed: Mapping[str, str], configured: Mapping[str, str], prefix: str = ""
) -> Iterator[Difference]:
    """The keys whose values differ, in the order of calve.yaml."""
    for key in [*configured, *(key for key in deployed if key not in configured)]:
        before, after = deployed.get(key, NOTHING), configured.get(key, NOTHING)
        if before != after:
            yield Difference(prefix + key, before, after)


def of_job(job: Job) -> dict[str, str]:
    found = flat({"masking": job.masking})
    for section in ("kafka", "registry", "lake"):
        part = getattr(job, section)
        found |= flat(asdict(part), f"{section}.") if part else {}
    return found


def of_table(table: Table) -> dict[str, str]:
    plain = asdict(table) | {"partition_by": terms(table.partition_by), "sort_by": terms(table.sort_by)}
    del plain["name"], plain["pattern"]
    return flat(plain)


def terms(transforms: tuple[Transform, ...]) -> str:
    """Partition or sort fields as calve.yaml writes them: `day(created_at), price desc`."""
    return ", ".join(map(str, transforms)) or NOTHING


def flat(values: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Texts by path, without None."""
    found: dict[str, str] = {}
    for key, value in ((str(key), value) for key, value in values.items()):
        name = prefix + (KEYS.get(key) or key.removesuffix("_s").removesuffix("_days"))  # without their unit
        if isinstance(value, dict) and value:
            found |= flat(value, f"{name}.")
        elif value is not None:
            found[name] = _shown(key, value)
    return found


def _shown(key: str, value: Any) -> str:
    match value:
        case {} | [] | ():
            return NOTHING
        case [*items]:
            return ", ".join(_item(each) if isinstance(each, dict) else str(each) for each in items)
        case bool():
            return str(value).lower()
        case int() | float() if key.endswith("_s"):
            return duration(value)
        case int() if key == "keep_days":
            return f"{value}d"
        case int() if key.endswith("_bytes"):
            return f"{value:,} B"
        case str() if key == "schema":
            return f"a text with the digest {hashlib.sha256(value.encode()).hexdigest()[:12]}"
    return str(value)


def _item(raw: Mapping[str, Any]) -> str:
    """A measure or a step, close to its form in calve.yaml."""
    if "kind" in raw:
        given = {name: each for name, each in raw.items() if name != "kind" and each}
        return f"{raw['kind']} {json.dumps(given, sort_keys=True)}"
    if "text" in raw:
        return f"{raw['name']}: {raw['text']}"
    column = f"({raw['column']})" if raw["column"] else ""
    return f"{raw['name']}: {raw['function']}{column}"


Kind = Literal["+", "~", "=", "-"]
KINDS: dict[Kind, str] = {"+": "new", "~": "changed", "=": "same", "-": "no longer configured"}


@dataclass(frozen=True, slots=True)
class Change:
    """`note`: more than the kind tells; `undecided`: fields to review; `engine`: the engine of a table, and why
    (`calve.config.engine_choice.Chosen`). entry: the entry with `topics` that the table is of.
    """

    section: str
    name: str
    kind: Kind
    differences: tuple[Difference, ...] = ()
    note: str = ""
    undecided: tuple[str, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    engine: str | None = None
    entry: str | None = None

    @property
    def breaking(self) -> bool:
        return any(each.breaking for each in self.consequences)
