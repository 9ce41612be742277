"""Find the rows and dead letters of a person: their columns hold the values that a request names (ADR 24).

These values appear in no plan, file, log or message. They are in the single row of a broadcast frame.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.config.masking_keys import Key
from calve.errors import CalveError
from calve.names import quote
from calve.requests.forget import Condition, Request, bound_to, seal_key
from glue_jobs.columns.expressions import at, false, kind_at
from glue_jobs.columns.tokens import frame_of
from glue_jobs.dead_letters.records import DEAD_LETTER, PLACE, UNDECRYPTED, records_of, rows_at
from glue_jobs.decode.decode import decode
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.table.counts import unknown_ids
from glue_jobs.table.open_table import OpenTable

TEXTS, VALUES, TEXT = (f"calve:forget:{each}" for each in ("texts", "values", "text"))
LEAST_BYTES = 6
"""Shorter values occur in records of many people. They are compared only with the whole key."""

How = Literal["left_semi", "left_anti"]
GONE: How = "left_semi"
KEPT: How = "left_anti"
"""The rows to remove, and all others: as joins with the rows to remove."""
Select = Callable[[DataFrame, How], DataFrame]


@dataclass(frozen=True)
class Person:
    """The person that meets all conditions, or many persons, each with a value of the one column.

    `keys`: the keys that hash personal data; their tokens replace the values.
    """

    lake: Lake
    where: tuple[Condition, ...]
    keys: Sequence[Key]

    def rows(self, frame: DataFrame, how: How = GONE) -> DataFrame:
        """As `Select`, of a frame that has the columns of the conditions."""
        if len(self.where) == 1:  # many values are a join
            texts = F.broadcast(self._wanted.select(F.explode(quote(f"{TEXTS}:0")).alias(TEXT)))
            return frame.join(texts, at(self.where[0].column).cast("string") == F.col(TEXT), how)
        named = (
            F.array_contains(F.col(quote(f"{TEXTS}:{n}")), at(each.column).cast("string"))
            for n, each in enumerate(self.where)
        )
        met = F.coalesce(reduce(Column.__and__, named), false())
        return self._where(frame, met if how == GONE else ~met)

    def records(self, records: DataFrame) -> DataFrame:
        """Records that contain the values in their bytes. A short value must equal the key."""
        named = (F.exists(F.col(quote(f"{VALUES}:{n}")), self._is_named) for n in range(len(self.where)))
        return self._where(records, reduce(Column.__and__, named))

    @staticmethod
    def _is_named(value: Column) -> Column:
        wanted = value.cast("binary")
        in_headers = F.exists(
            F.coalesce("headers", F.array()),
            lambda each: _contains(each["value"], wanted) | _contains(each["key"].cast("binary"), wanted),
        )
        anywhere = _contains(F.col("key"), wanted) | _contains(F.col("value"), wanted) | in_headers
        return F.when(F.octet_length(wanted) < LEAST_BYTES, F.col("key").eqNullSafe(wanted)).otherwise(
            anywhere
        )

    def _where(self, frame: DataFrame, met: Column) -> DataFrame:
        columns = [F.col(quote(name)) for name in frame.columns]
        return frame.crossJoin(F.broadcast(self._wanted)).where(met).select(*columns)

    @cached_property
    def _wanted(self) -> DataFrame:
        """One row with, for each condition, all texts that represent its values, and these."""
        values: list[object] = []
        kinds: list[str] = []
        for n, each in enumerate(self.where):
            data = [value.encode() for value in each.values]
            tokens = (
                f"{key.id}:{hmac.digest(key.secret, value, 'sha256').hex()}"
                for key in self.keys
                for value in data
            )
            values += [self.lake.strings(*each.values, *tokens), self.lake.strings(*each.values)]
            kinds += [f"{quote(f'{TEXTS}:{n}')} array<string>", f"{quote(f'{VALUES}:{n}')} array<string>"]
        return frame_of(self.lake.spark, ", ".join(kinds), [values])


def person_of(table: OpenTable, request: Request) -> Person:
    """The person of a request, with decrypted values.

    Raises CalveError: the secret lacks the key, or the values cannot be decrypted.
    """
    keys, where = table.services.masking_keys, request.where
    if request.sealed is None:
        return Person(table.services.lake, where, keys)
    key = next((each for each in keys if each.id == request.sealed), None)
    if key is None:
        raise CalveError(f"the secret lacks the masking key {request.sealed}, which encrypts the request")
    values = [value for each in where for value in each.values]
    sealed = [
        [n, seal_key(key, request.id), base64.b64decode(value), bound_to(request.id, n)]
        for n, value in enumerate(values)
    ]
    frame = frame_of(table.services.lake.spark, "n int, round_key binary, data binary, bound binary", sealed)
    clear = F.try_aes_decrypt("data", "round_key", F.lit("GCM"), F.lit("DEFAULT"), "bound").cast("string")
    found = {row["n"]: row["clear"] for row in frame.select("n", clear.alias("clear")).collect()}
    if None in found.values():
        raise CalveError("the values of the request cannot be decrypted")
    opened = request.with_values(lambda n, _: found[n])
    return Person(table.services.lake, opened.where, keys)


def dead_letters_of(
    table: OpenTable, person: Person, dead_letters: Table
) -> tuple[list[tuple[Any, ...]], int]:
    """The places of the person's dead letters, including redriven ones; and how many could not be decrypted.

    A dead letter matches by its bytes, or by the row that it would be.
    """
    keys = table.services.masking_keys
    chosen = records_of(rows_at(dead_letters, dead_letters.head), keys)
    table = table.learn(*unknown_ids(chosen, table.decode_plan)) or table
    found = person.records(chosen).select(DEAD_LETTER)
    decoded = decode(chosen, table.decode_plan, table.mode)
    made = table.row_plan.records(decoded, DEAD_LETTER)
    made = table.row_plan.all_rows(made) if table.row_plan.chain.explodes else made
    if all(kind_at(made.schema, each.column) is not None for each in person.where):
        found = found.unionByName(person.rows(made).select(DEAD_LETTER))
    places = found.select(*(F.col(DEAD_LETTER)[name].alias(name) for name in PLACE)).distinct()
    unopened = chosen.where(F.col(UNDECRYPTED)).count() if keys else 0
    return sorted(tuple(row) for row in places.collect()), unopened


def _contains(data: Column, wanted: Column) -> Column:
    return F.coalesce(F.contains(data, wanted), false())
