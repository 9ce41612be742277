"""Many tables, several at a time: one that fails keeps no other from its turn."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calve.errors import CalveError
from calve.names import TableName
from lambdas.catalog_sync.deciding import Act
from lambdas.catalog_sync.published import Published, known, parsed

if TYPE_CHECKING:
    from lambdas.catalog_sync.sync import Outcome, Sync

AT_ONCE = 8
LATE_S = 60.0
"""What is missing for longer was lost on the way, and not just on its way."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`reason` is for logs; `error` is of which kind."""

    table: str
    error: Exception
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What became of tables."""

    outcomes: tuple[Outcome, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def repairs(self) -> list[Outcome]:
        """What no commit of this moment explains."""
        return [
            each for each in self.outcomes if Act.DROP in each.acts or (each.acts and each.late_s > LATE_S)
        ]


def follow(sync: Sync, names: Iterable[TableName], *, published: bool = True) -> Report:
    """Make these tables equal; those that are not published, gone."""

    def one(name: TableName) -> Outcome | Failure:
        try:
            return sync.table(name, published=published)
        except CalveError as error:
            return Failure(str(name), error, " ".join(str(error).split()))
        except Exception as error:  # noqa: BLE001 an AWS client's: the other tables have their turn
            return Failure(str(name), error, f"{type(error).__name__}: {error}")

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        found = list(pool.map(one, dict.fromkeys(names)))
    return Report(
        tuple(each for each in found if not isinstance(each, Failure)),
        tuple(each for each in found if isinstance(each, Failure)),
    )


def reconcile(sync: Sync, published: Published) -> Report:
    """Make all tables equal: those that have a row, and those that have appeared."""
    there = known(sync.states)
    names = [*map(parsed, there), *published.unknown(sync.glue, there)]
    return follow(sync, names)


def withdraw(sync: Sync, published: Published) -> Report:
    """Drop the tables that have a row and are not published, and the namespaces that nothing is left in."""
    gone = [name for name in map(parsed, known(sync.states)) if not published.matches(sync.glue, name)]
    report = follow(sync, gone, published=False)
    sync.drop_namespaces({sync.namespace_of(name) for name in gone})
    return report
