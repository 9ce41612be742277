"""How many rows of a commit have which value of a declared column, counted while they are written.

A sketch of bounded memory counts: as long as a task sees fewer values than it may hold, each count is exact, and all of them
add up to the rows. What does not add up, or is of too many values, is no category and is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from calve.names import quote

MOST_VALUES = 50
LONGEST = 64
"""Characters of a value that is told."""
HELD = 1_000
"""Values that the sketch holds of a task."""


def count_values(rows: DataFrame, column: str) -> tuple[DataFrame, Callable[[int], dict[str, Any]]]:
    """The rows with a counter, and what it says once they are written, given how many they were."""
    observation = Observation()
    text = F.col(quote(column)).cast("string")
    told = F.when(F.length(text) <= LONGEST, text)
    top = F.call_function("approx_top_k", told, F.lit(MOST_VALUES + 2), F.lit(HELD))
    return rows.observe(observation, top.alias("top")), lambda count: counts(
        column, observation.get["top"] if count else (), count
    )


def counts(column: str, top: Iterable[Any], rows: int) -> dict[str, Any]:
    """As `calve.metrics` has them: rows by value, and the others, which have no value, or one of more or longer ones."""
    found = {item: int(number) for item, number in top}
    values = dict(sorted((item, number) for item, number in found.items() if item is not None))
    if len(values) > MOST_VALUES or sum(found.values()) != rows:
        values = {}
    return {"column": column, "values": values, "other": rows - sum(values.values())}
