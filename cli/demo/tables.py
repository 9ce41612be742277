"""The tables of a job of the demo: opened, and verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from calve.errors import Fatal
from cli import lake
from cli.verify.command import show
from cli.verify.sources import Sources
from cli.verify.verification import verify

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from calve.job import Job
    from calve.names import TableName
    from cli.console import Console
    from cli.verify.findings import Verification


def opened(catalog: Catalog, name: TableName) -> Table:
    """A table of a job that has run.

    Raises:
        Fatal: there is none.
    """
    found = lake.load(catalog, name)
    if found is None:
        raise Fatal(f"the job ended well, but there is no table {name}")
    return found


def verified(catalog: Catalog, job: Job, console: Console) -> dict[str, Verification]:
    """What `calve verify` says of each table, by the table's name; shown, too."""
    found = {}
    for table in job.tables:
        sources = Sources.of(catalog, job, table)
        found[table.name] = verify(job.table_name(table), sources, console.progress())
        show(console, found[table.name], digests=False)
    return found


def unproved(found: Mapping[str, Verification]) -> list[str]:
    """A sentence for each table in which something is wrong, and one for each of which not all is proved."""
    wrong = [f"{name}: verify found what is listed above" for name, each in found.items() if each.findings]
    return wrong + [f"{name}: not all of it is proved" for name, each in found.items() if not each.complete]
