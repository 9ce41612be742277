"""Tables as broad as the terminal: where there is no room for a figure, it is left out whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.table import Table
from rich.text import Text

GAP, NARROW = 2, 1


def fitted(
    columns: Mapping[str, Sequence[Text]], width: int, *, left: Collection[str], dispensable: Sequence[str]
) -> Table:
    """A table of cells by column. left: columns of words. dispensable: in this order, where there is no room for all."""
    shown = dict(columns)
    for name in dispensable:
        if _width(shown, NARROW) <= width:
            break
        shown.pop(name, None)
    gap = GAP if _width(shown, GAP) <= width else NARROW
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, gap, 0, 0))
    for name in shown:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True, overflow="ellipsis")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def _width(columns: Mapping[str, Sequence[Text]], gap: int) -> int:
    return sum(gap + max([len(name), *(each.cell_len for each in cells)]) for name, cells in columns.items())
