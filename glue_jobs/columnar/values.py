"""How many rows have which value of a column, as `glue_jobs.tally` tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from glue_jobs.tally import LONGEST, MOST_VALUES

Values = Mapping[str | None, int]
"""Rows by value; under None those that have none, or a longer one than is told."""


def values_of(column: pa.ChunkedArray) -> Values | None:
    """The values of a column of texts, truths or whole numbers; None: they are too many to be told, or no texts."""
    counted = pc.value_counts(column)
    texts, counts = counted.field("values").cast(pa.string()), counted.field("counts")
    short = pc.fill_null(pc.less_equal(pc.utf8_length(texts), LONGEST), False)  # noqa: FBT003 a value, not a switch
    if (pc.sum(short).as_py() or 0) > MOST_VALUES:
        return None
    try:
        found = dict(zip(texts.filter(short).to_pylist(), counts.filter(short).to_pylist(), strict=True))
    except UnicodeDecodeError:
        return None
    return found | {None: len(column) - sum(found.values())}


def together(parts: Iterable[Values | None]) -> Values | None:
    """Those of several parts."""
    found: dict[str | None, int] = {}
    for part in parts:
        if part is None:
            return None
        for value, count in part.items():
            found[value] = found.get(value, 0) + count
    return found if len(found.keys() - {None}) <= MOST_VALUES else None
