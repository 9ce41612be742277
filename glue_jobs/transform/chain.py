"""All steps of a table: first the steps on records, then the steps on rows, and the resulting columns.

Until a list is exploded, each row represents one record: filtering or rejecting a row filters or rejects the record.
After the explosion, a filter removes single rows. If one row of a record cannot be computed, the record is rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, IntegralType, StringType

from calve.config.job import Table
from calve.config.steps import (
    UNMET,
    Expect,
    Filter,
    Flatten,
    Lookup,
    Mask,
    Route,
    Sql,
    Step,
    Value,
    place,
    plain,
    tokens_by,
)
from calve.errors import Suspended
from calve.names import quote, quote_path
from calve.outputs.origins import Trace
from calve.schema.columns import CHANGE, KAFKA, Json, struct
from glue_jobs.columns.expressions import FILTERED, REJECT, RULE, false
from glue_jobs.columns.tokens import any_keys
from glue_jobs.transform.flatten import exploded, run_flatten
from glue_jobs.transform.lookup import run_lookup
from glue_jobs.transform.mask import run_mask
from glue_jobs.transform.origins import after, after_explosion
from glue_jobs.transform.query import run_expect, run_filter, run_sql
from glue_jobs.transform.row_columns import (
    data,
    has_changes,
    is_live,
    record,
    rejecting,
    remade,
    type_at,
    unusable,
)
from glue_jobs.transform.types import iceberg_columns, spark_schema


@dataclass(frozen=True, slots=True)
class StepResources:
    """keys: `tokens.key_frame` of the masking key with this id, or of all current ones.

    tables: rows of other tables, the same throughout a round. tags: of the fields of records, by path.
    """

    keys: Callable[[str | None], DataFrame]
    tables: Callable[[Lookup], DataFrame]
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


NO_ROUTE = "no_route"
KINDS: dict[type[DataType], type[Value]] = {StringType: str, IntegralType: int, BooleanType: bool}


def run_route(frame: DataFrame, step: Route) -> DataFrame:
    """Filter the records of other tables. A record that no table names is filtered, kept, or rejected.

    Raises Suspended: `step_unusable`: the column is missing or cannot hold the values.
    """
    found = type_at(record(frame), step.column)
    shown = f'"{step.column}" is {found.simpleString()}'
    kind = next((kind for each, kind in KINDS.items() if isinstance(found, each)), None)
    if kind is None:
        raise unusable(f"{shown}, and records are routed by text, whole numbers and booleans alone")
    for each in (*step.values, *step.named):
        if type(each) is not kind:
            raise unusable(f"{shown}, so {json.dumps(each)} is no value of it")
    frame = rejecting(frame, [step.column.split(".")[0]])
    live, value = is_live(frame), F.col(quote_path(step.column))
    own, named = _is_one(value, step.values), _is_one(value, step.named)
    match step.others:
        case "leave_out":
            left_out, lost = ~own, false()
        case "keep":
            left_out, lost = named, false()
        case "reject":
            left_out, lost = named & ~own, ~named
    reject = F.when(live & lost, F.lit(NO_ROUTE))
    return remade(frame, frame, data(frame), reject=reject, filtered=live & left_out)


def _by_rule(frame: DataFrame, number: int, *, rejects: bool = False) -> DataFrame:
    """The rows that a step has made, with `RULE` for those that it filtered, and with `rejects` for unmet expectations."""
    if FILTERED not in frame.columns and not rejects:
        return frame
    filtered = F.col(FILTERED) if FILTERED in frame.columns else false()
    unmet = F.coalesce(F.col(REJECT) == UNMET, false()) if rejects else false()
    rule = F.when(filtered | unmet, F.lit(number))
    return frame.withColumn(RULE, F.coalesce(F.col(RULE), rule) if RULE in frame.columns else rule)


def _is_one(value: Column, values: Sequence[Value]) -> Column:
    return F.coalesce(value.isin(*values), false()) if values else false()


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps of a table. stay: structs that are never flattened."""

    steps: tuple[Step, ...]
    means: StepResources
    stay: frozenset[str] = frozenset()

    @property
    def explodes(self) -> bool:
        return self._first_explosion < len(self.steps)

    def of_records(self, frame: DataFrame) -> DataFrame:
        """The result of the steps up to the first explosion; each row represents a record."""
        for number, step in enumerate(self.steps[: self._first_explosion + 1]):
            frame = self.run(number, step, frame)
        return frame

    def of_rows(self, frame: DataFrame) -> DataFrame:
        """The result of the first explosion and the later steps on the rows of `of_records`."""
        for number, step in enumerate(self.steps):
            if number > self._first_explosion:
                frame = self.run(number, step, frame)
            if number >= self._first_explosion and isinstance(step, Flatten):
                with self.naming(number):
                    frame = exploded(frame, step)
        return frame

    def require_lasting(self, key: Iterable[str]) -> None:
        """Refuse key columns that are hashed by the key of the record's time: a value then has several tokens.

        Raises Suspended: `key_unusable`.
        """
        hashed = tokens_by(self.steps, self.means.tags)
        for path in key:
            if hashed.get(plain(path), "") is None:
                raise Suspended(
                    "key_unusable",
                    f"{path} is hashed, and its hashes change with the masking key: they cannot identify rows",
                    fix="add `masking_key: ID` to the step `mask`, the id of a key in its secret. Name the column in"
                    " `fields`; `key: keep` leaves _kafka.key as it is",
                )

    def columns(self, spark: SparkSession, source: Json) -> Json:
        """The final data columns of rows made from records that are decoded to `source`.

        Raises Suspended: `step_unusable`: a step does not fit its columns, or makes a type that no table can hold.
        """
        records = spark.createDataFrame([], spark_schema(struct(*source["fields"], KAFKA)))
        chain = self.with_any_keys(spark)
        made = chain.of_rows(chain.of_records(records))
        found = iceberg_columns(made.select(*map(quote, data(made))).schema)
        return struct(*found["fields"], CHANGE) if has_changes(made) else found

    def origins(self, spark: SparkSession, source: Json) -> Trace:
        """The origins of the columns that `columns` gives. Raises Suspended: as `columns`."""
        frame = spark.createDataFrame([], spark_schema(struct(*source["fields"], KAFKA)))
        trace, chain = Trace.of_records(data(frame)), self.with_any_keys(spark)
        for number, step in enumerate(self.steps):
            trace = after(trace, step, frame, self.stay, self.means.tags)
            frame = chain.run(number, step, frame)
            if number >= self._first_explosion and isinstance(step, Flatten) and step.explode:
                trace = after_explosion(trace, step, frame)
                frame = exploded(frame, step)
        return trace

    def with_any_keys(self, spark: SparkSession) -> Chain:
        return replace(self, means=replace(self.means, keys=lambda _: any_keys(spark)))

    @property
    def _first_explosion(self) -> int:
        found = (n for n, step in enumerate(self.steps) if isinstance(step, Flatten) and step.explode)
        return next(found, len(self.steps))

    def run(self, number: int, step: Step, frame: DataFrame) -> DataFrame:
        """The result of one step. A list to explode is still a list."""
        with self.naming(number):
            match step:
                case Route():
                    return _by_rule(run_route(frame, step), number)
                case Flatten():
                    return run_flatten(frame, step, self.stay)
                case Filter():
                    return _by_rule(run_filter(frame, step), number)
                case Sql():
                    return _by_rule(run_sql(frame, step), number)
                case Lookup():
                    return run_lookup(frame, step, self.means.tables(step))
                case Mask():
                    return run_mask(frame, step, self.means.keys, self.means.tags)
                case Expect():
                    return _by_rule(run_expect(frame, step), number, rejects=not step.drop)

    @contextmanager
    def naming(self, number: int) -> Iterator[None]:
        try:
            yield
        except Suspended as problem:
            where = place(self.steps, number)
            text, at = f"{where}: {problem.message}", tuple(re.findall(r"\w+", where))
            raise Suspended(problem.code, text, fix=problem.fix, at=at) from None


def chain_of(table: Table, means: StepResources, key_column: str | None) -> Chain:
    """The steps of a table. A key column that a tombstone needs is never flattened."""
    tells = table.mode.deletes
    return Chain(table.steps, means, frozenset({key_column} if tells and key_column else ()))
