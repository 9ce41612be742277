"""What leaves a table when a person is forgotten, and the files that it is in: the person's rows, or dead letters (ADR 24)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.errors import CalveError
from glue_jobs.forgetting.persons import Person
from glue_jobs.forgetting.rewriting import FILE, Narrow, Rewriting
from glue_jobs.keys import OFFSET, PARTITION, TIMESTAMP, at
from glue_jobs.lake import Table
from glue_jobs.marks import LETTER
from glue_jobs.target import Target

MOST = 1_000_000
"""So many records are no person's: a column of countries was named, or the like."""

Place = tuple[Any, ...]
OF_ROWS = "partition int, offset long, timestamp_us long"
OF_LETTERS = "cluster_id string, topic_id string, partition int, offset long"
"""What tells a record: in a row, and in a dead letter (`glue_jobs.marks.LETTER`)."""


@dataclass(frozen=True, slots=True)
class Gone:
    """places: of each record. rows: how many there are. all: themselves. tasks: Iceberg's, of the files that hold them."""

    places: Sequence[Place]
    rows: int
    all: DataFrame
    rewriting: Rewriting
    tasks: list[Any]


def gone_rows(target: Target, person: Person) -> Gone:
    """The person's rows in main. Of a record that makes several rows all go, whichever of them tells the person.

    Raises:
        CalveError: there are too many.
    """
    told_by = {
        "partition": at(PARTITION),
        "offset": at(OFFSET),
        "timestamp_us": F.unix_micros(at(TIMESTAMP)),
    }
    found = _gone(target, target.main, person.rows, person.others, told_by)
    if not target.shaping.chain.explodes:
        return found
    gone, kept = _at(target, found.places, OF_ROWS, told_by)
    return _gone(target, target.main, gone, kept, told_by)


def gone_letters(target: Target, letters: Table, places: Sequence[Place]) -> Gone:
    """The dead letters at these places."""
    told_by = {name: F.col(name) for name in LETTER}
    gone, kept = _at(target, places, OF_LETTERS, told_by)
    return _gone(target, letters, gone, kept, told_by)


def _gone(target: Target, table: Table, gone: Narrow, kept: Narrow, told_by: Mapping[str, Column]) -> Gone:
    rewriting = Rewriting(target.lake, table, gone=gone, kept=kept, name=target.table.name)
    rows = gone(rewriting.all_rows)
    place = F.struct(*(column.alias(name) for name, column in told_by.items()))
    counted = rows.groupBy(F.col(FILE).alias("file"), place.alias("place")).agg(F.count("*").alias("rows"))
    found = counted.limit(MOST + 1).collect()
    if len(found) > MOST:
        raise CalveError(f"more than {MOST:,} records are told by that: it is no person's key")
    places = sorted({tuple(each["place"]) for each in found})
    tasks = rewriting.files({each["file"] for each in found})
    return Gone(places, sum(each["rows"] for each in found), rows, rewriting, tasks)


def _at(
    target: Target, places: Sequence[Place], kinds: str, told_by: Mapping[str, Column]
) -> tuple[Narrow, Narrow]:
    """Rows at these places, and all others."""
    listed = target.lake.spark.createDataFrame(list(places), kinds)
    those = F.broadcast(listed.select(*(F.col(name).alias(f"calve:{name}") for name in told_by)))
    same = reduce(
        Column.__and__,
        (column.eqNullSafe(F.col(f"`calve:{name}`")) for name, column in told_by.items()),
    )

    def narrow(how: str) -> Callable[[DataFrame], DataFrame]:
        return lambda rows: rows.join(those, same, how)

    return narrow("left_semi"), narrow("left_anti")
