"""The dead letters of a table as PyIceberg reads them: batches of bounded size, whatever the table holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.errors import CalveError
from cli import lake
from cli.dead_letters.letter import COLUMNS, summarize
from lambdas.csv_export import batches
from lambdas.csv_export.failure import ExportFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

    from calve.names import TableName
    from cli.dead_letters.letter import Group
    from cli.dead_letters.selection import Selection


def open_letters(catalog: Catalog, name: TableName) -> tuple[Table, Table | None]:
    """The table `name` and its dead-letter table; None where no record was ever rejected.

    Raises:
        CalveError: there is no table of that name.
    """
    main = lake.load(catalog, name)
    if main is None:
        raise CalveError(f"the table {name} does not exist yet", fix=f"calve status {name.table} says why")
    return main, lake.load(catalog, name.dead_letters)


def read(
    letters: Table, selected: BooleanExpression, columns: Sequence[str] = ("*",)
) -> Iterator[pa.RecordBatch]:
    """The selected dead letters; what statistics of a file rule out is not opened.

    Raises:
        CalveError: a file is no Parquet.
        Retryable, Fatal: as `cli.lake.load`.
    """
    with lake.aws_errors(f"table {'.'.join(letters.name())}"):
        scan = letters.scan(selected, selected_fields=tuple(columns))
        tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        try:
            yield from batches.read(letters, tasks, scan.projection(), selected)
        except ExportFailed as error:
            raise CalveError(error.message, fix=error.fix) from None


def grouped(letters: Table, selection: Selection) -> list[Group]:
    """The selected dead letters, counted."""
    return summarize(read(letters, selection.within(letters), COLUMNS))


def count(letters: Table, selection: Selection) -> int:
    """How many there are; reads one column."""
    return sum(batch.num_rows for batch in read(letters, selection.within(letters), ("offset",)))
