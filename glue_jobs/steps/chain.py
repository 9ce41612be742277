"""All steps of a table: those that know records, then those that know rows, and the columns that come of it.

A list that is exploded ends the part in which a row stands for its record. What a step before it says of a row it says of the
record; what one after it leaves out is a row, and where one of a record's rows cannot be computed the record is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from calve.columns import KAFKA, Json, struct
from calve.errors import Suspended
from calve.job import Table, Upsert
from calve.names import SYSTEM_COLUMN, quote
from calve.steps import Filter, Flatten, Lookup, Mask, Route, Sql, Step
from glue_jobs.steps.flatten import exploded, run_flatten
from glue_jobs.steps.frame import data
from glue_jobs.steps.lookup import run_lookup
from glue_jobs.steps.mask import run_mask
from glue_jobs.steps.means import Means
from glue_jobs.steps.route import run_route
from glue_jobs.steps.sql import run_filter, run_sql
from glue_jobs.steps.tokens import any_keys
from glue_jobs.steps.types import iceberg_columns, spark_schema

RECORD_KEY = f"{SYSTEM_COLUMN}.key"


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps of a table. stay: structs that are never flattened."""

    steps: tuple[Step, ...]
    means: Means
    stay: frozenset[str] = frozenset()

    @property
    def explodes(self) -> bool:
        """Whether a record may make several rows."""
        return self._first_explosion < len(self.steps)

    def of_records(self, frame: DataFrame) -> DataFrame:
        """What the steps up to the first explosion make of rows that each stand for a record."""
        for number, step in enumerate(self.steps[: self._first_explosion + 1]):
            frame = self.run(number, step, frame)
        return frame

    def of_rows(self, frame: DataFrame) -> DataFrame:
        """What the first explosion and the steps behind it make of rows that `of_records` has made."""
        for number, step in enumerate(self.steps):
            if number > self._first_explosion:
                frame = self.run(number, step, frame)
            if number >= self._first_explosion and isinstance(step, Flatten):
                with self.naming(number, step):
                    frame = exploded(frame, step)
        return frame

    def require_lasting(self, key: Iterable[str]) -> None:
        """Refuse keys that are tokens: the same value has another one once its key has been replaced.

        Raises:
            Suspended: `key_unusable`.
        """
        hashed = {
            _plain(each) for step in self.steps if isinstance(step, Mask) for each in self._hashed(step)
        }
        for path in key:
            if _plain(path) in hashed:
                raise Suspended(
                    "key_unusable",
                    f"{path} is hashed, and its hashes change when the masking key does: rows would not be told apart by it",
                    fix="choose another key for the mode, or mask the column another way; `key: keep` leaves _kafka.key as it is",
                )

    def _hashed(self, step: Mask) -> Iterator[str]:
        rules = {
            path: step.tags[tag] for path, tags in self.means.tags.items() for tag in tags if tag in step.tags
        }
        yield from (path for path, rule in (rules | step.fields).items() if rule.how == "hash")
        if step.key == "hash":
            yield RECORD_KEY

    def columns(self, spark: SparkSession, source: Json) -> Json:
        """The data columns that rows have in the end, of records that are decoded to `source`.

        Raises:
            Suspended: `step_unusable`: a step cannot be run on the columns that there are, or makes what no table can hold.
        """
        records = spark.createDataFrame([], spark_schema(struct(*source["fields"], KAFKA)))
        chain = self.with_any_keys(spark)
        made = chain.of_rows(chain.of_records(records))
        return iceberg_columns(made.select(*map(quote, data(made))).schema)

    def with_any_keys(self, spark: SparkSession) -> Chain:
        """The same for rows that nobody keeps: they are hashed by a key that nobody has."""
        return replace(self, means=replace(self.means, keys=lambda: any_keys(spark)))

    @property
    def _first_explosion(self) -> int:
        found = (n for n, step in enumerate(self.steps) if isinstance(step, Flatten) and step.explode)
        return next(found, len(self.steps))

    def run(self, number: int, step: Step, frame: DataFrame) -> DataFrame:
        """What one of the steps makes of a frame; a list that it explodes is still a list."""
        with self.naming(number, step):
            match step:
                case Route():
                    return run_route(frame, step)
                case Flatten():
                    return run_flatten(frame, step, self.stay)
                case Filter():
                    return run_filter(frame, step)
                case Sql():
                    return run_sql(frame, step)
                case Lookup():
                    return run_lookup(frame, step, self.means.tables(step))
                case Mask():
                    return run_mask(frame, step, self.means.keys, self.means.tags)

    @contextmanager
    def naming(self, number: int, step: Step) -> Iterator[None]:
        """Problems of a step say which one it is."""
        try:
            yield
        except Suspended as problem:
            text = f"{self.place(number, step)}: {problem.message}"
            at = tuple(re.findall(r"\w+", self.place(number, step)))
            raise Suspended(problem.code, text, fix=problem.fix, at=at) from None

    def place(self, number: int, step: Step) -> str:
        """Where calve.yaml has the step: a route stands beside the list, and comes before it."""
        if isinstance(step, Route):
            return step.kind
        routed = isinstance(self.steps[0], Route)
        return f"steps[{number - routed}].{step.kind}"


def _plain(path: str) -> str:
    """A path without what flattening puts in the place of its dots."""
    return path.replace(".", "").replace("_", "")


def chain_of(table: Table, means: Means, key_column: str | None) -> Chain:
    """The steps of a table; a column that tells which row a tombstone deletes stays what it is."""
    tells = isinstance(table.mode, Upsert) and table.mode.deletes
    return Chain(table.steps, means, frozenset({key_column} if tells and key_column else ()))
