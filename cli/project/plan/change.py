"""What would happen to one thing, and its values as texts by the keys that they have in calve.yaml."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from calve.config.job import Job, Table, Transform
from cli.console import duration
from cli.project.plan.consequences import Consequence

NOTHING = "-"
KEYS = {
    "freshness_s": "freshness",
    "flush_bytes": "flush_size",
    "partition_flush_bytes": "partition_flush_size",
    "wait_s": "wait",
    "keep_s": "keep",
    "keep_days": "keep",
    "link_days": "link.days",
    "max_downloads": "link.max_downloads",
    "file_bytes": "file_size",
    "snapshots_s": "snapshots",
    "dead_letters_s": "dead_letters",
}
"""Fields of the resolved values whose keys in calve.yaml are other ones."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key with what is deployed and what is configured; `-` stands for nothing."""

    key: str
    deployed: str
    configured: str


def differences(
    deployed: Mapping[str, str], configured: Mapping[str, str], prefix: str = ""
) -> Iterator[Difference]:
    """The keys of either side that are not the same, in the order of calve.yaml."""
    for key in [*configured, *(key for key in deployed if key not in configured)]:
        before, after = deployed.get(key, NOTHING), configured.get(key, NOTHING)
        if before != after:
            yield Difference(prefix + key, before, after)


def of_job(job: Job) -> dict[str, str]:
    """A job's settings but for its tables."""
    found = flat({"masking": job.masking})
    for section in ("kafka", "registry", "lake"):
        part = getattr(job, section)
        found |= flat(asdict(part), f"{section}.") if part else {}
    return found


def of_table(table: Table) -> dict[str, str]:
    """One entry of `tables`."""
    plain = asdict(table) | {"partition_by": terms(table.partition_by), "sort_by": terms(table.sort_by)}
    del plain["name"], plain["pattern"]
    return flat(plain)


def terms(transforms: tuple[Transform, ...]) -> str:
    """Partition or sort fields as calve.yaml writes them: `day(created_at), price desc`."""
    return ", ".join(map(str, transforms)) or NOTHING


def flat(values: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Texts by path; what is None has none."""
    found: dict[str, str] = {}
    for key, value in ((str(key), value) for key, value in values.items()):
        name = prefix + KEYS.get(key, key)
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
    """A measure or a step as calve.yaml has it, more or less."""
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
    """`note` says what the kind alone does not, `undecided` which fields are to be decided on, `engine` what makes the rows of a
    table, and why (`calve.config.engine_choice.Chosen`). entry: the entry with `topics` that it is a table of.
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
