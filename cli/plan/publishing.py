"""What a deploy would change of where tables are published to."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from calve.publishing import IcebergRest, Snowflake
from cli.plan.change import Change
from cli.plan.consequences import Consequence
from cli.plan.written import NOTHING, Difference, differences, flat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from calve.publishing import Publish
    from cli.plan.deployed import DeployedTarget

PLACE = {
    "iceberg_rest": ("uri", "warehouse", "namespace"),
    "snowflake": ("account", "database", "schema", "tables"),
}
"""The keys that say where a table is found."""
SHOWN = 10


def of_targets(publish: Publish | None, deployed: Mapping[str, DeployedTarget]) -> list[Change]:
    """A change for each target of either side."""
    wanted: dict[str, IcebergRest | Snowflake] = {}
    if publish and publish.iceberg_rest:
        wanted["iceberg_rest"] = publish.iceberg_rest
    if publish and publish.snowflake:
        wanted["snowflake"] = publish.snowflake
    found = [_target(name, each, publish, deployed.get(name)) for name, each in wanted.items() if publish]
    return found + [
        Change("publish", name, "-", consequences=tuple(_dropped(each.tables)))
        for name, each in deployed.items()
        if name not in wanted
    ]


def _target(
    name: str, wanted: IcebergRest | Snowflake, publish: Publish, deployed: DeployedTarget | None
) -> Change:
    tables = {each.table for each in publish.tables}
    if deployed is None:
        return Change(
            "publish", name, "+", note=f"of {_listed(tables) or 'the tables of topics by expression'}"
        )
    patterns = [re.compile(each) for each in publish.patterns]
    if deployed.settings:
        found = list(differences(_settings(deployed.settings), _settings(wanted)))
    else:
        found = [Difference("settings", "not readable", "as in calve.yaml")]
    added = tables - deployed.tables
    gone = {
        table
        for table in deployed.tables - tables
        if not any(pattern.fullmatch(table) for pattern in patterns)
    }
    if added or gone:
        found.append(Difference("tables", _listed(gone) or NOTHING, _listed(added) or NOTHING))
    if not found:
        return Change("publish", name, "=")
    moved = [each.key for each in found if each.key in PLACE[name]]
    consequences = [*_dropped(gone)]
    if moved:
        text = f"{', '.join(moved)}: every table leaves its place there and is made in the new one"
        consequences.append(Consequence(text, breaking=True))
    return Change("publish", name, "~", tuple(found), consequences=tuple(consequences))


def _settings(settings: IcebergRest | Snowflake) -> dict[str, str]:
    """What is the same before and after a deploy: one that makes a catalog makes the credentials for it, too."""
    if isinstance(settings, IcebergRest) and settings.bootstrap:
        settings = replace(settings, secret=None, scope=None)
    return flat(asdict(settings))


def _dropped(tables: Iterable[str]) -> Iterator[Consequence]:
    if names := _listed(tables):
        yield Consequence(f"{names} can no longer be read there; the data stays in the lake", breaking=True)


def _listed(tables: Iterable[str]) -> str:
    names = sorted(tables)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
