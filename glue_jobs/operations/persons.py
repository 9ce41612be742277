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

TEXTS, BYTES = "calve:forget:texts", "calve:forget:bytes"
LEAST_BYTES = 6
"""Shorter values occur in records of many people. They are compared only with the whole key."""

How = Literal["left_semi", "left_anti"]
GONE: How = "left_semi"
KEPT: How = "left_anti"
"""The rows to remove, and all others: as joins with the rows to remove."""
Select = Callable[[DataFrame, How], DataFrame]


@dataclass(frozen=True)
class Person:
    """The person that meets all conditions. `keys`: the keys that hash personal data; their tokens replace the values."""

    lake: Lake
    where: tuple[Condition, ...]
    keys: Sequence[Key]

    def rows(self, frame: DataFrame, how: How = GONE) -> DataFrame:
        """As `Select`, of a frame that has the columns of the conditions."""
        named = (
            F.array_contains(F.col(quote(f"{TEXTS}:{n}")), at(each.column).cast("string"))
            for n, each in enumerate(self.where)
        )
        met = F.coalesce(reduce(Column.__and__, named), false())
        return self._where(frame, met if how == GONE else ~met)

    def records(self, records: DataFrame) -> DataFrame:
        """Records that contain the values in their bytes. A short value must equal the key."""
        named = (self._is_named(n, each.value.encode()) for n, each in enumerate(self.where))
        return self._where(records, reduce(Column.__and__, named))

    def _is_named(self, n: int, value: bytes) -> Column:
        wanted = F.col(quote(f"{BYTES}:{n}"))
        if len(value) < LEAST_BYTES:
            return F.col("key").eqNullSafe(wanted)
        in_headers = F.exists(
            F.coalesce("headers", F.array()),
            lambda each: _contains(each["value"], wanted) | _contains(each["key"].cast("binary"), wanted),
        )
        return _contains(F.col("key"), wanted) | _contains(F.col("value"), wanted) | in_headers

    def _where(self, frame: DataFrame, met: Column) -> DataFrame:
        columns = [F.col(quote(name)) for name in frame.columns]
        return frame.crossJoin(F.broadcast(self._wanted)).where(met).select(*columns)

    @cached_property
    def _wanted(self) -> DataFrame:
        """One row with, for each condition, all texts that represent its value, and its bytes."""
        values: list[object] = []
        kinds: list[str] = []
        for n, each in enumerate(self.where):
            data = each.value.encode()
            tokens = (f"{key.id}:{hmac.digest(key.secret, data, 'sha256').hex()}" for key in self.keys)
            values += [self.lake.strings(each.value, *tokens), data]
            kinds += [f"{quote(f'{TEXTS}:{n}')} array<string>", f"{quote(f'{BYTES}:{n}')} binary"]
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
    sealed = [
        [n, seal_key(key, request.id), base64.b64decode(each.value), bound_to(request.id, n)]
        for n, each in enumerate(where)
    ]
    frame = frame_of(table.services.lake.spark, "n int, round_key binary, data binary, bound binary", sealed)
    clear = F.try_aes_decrypt("data", "round_key", F.lit("GCM"), F.lit("DEFAULT"), "bound").cast("string")
    found = {row["n"]: row["clear"] for row in frame.select("n", clear.alias("clear")).collect()}
    if None in found.values():
        raise CalveError("the values of the request cannot be decrypted")
    opened = tuple(Condition(each.column, found[n]) for n, each in enumerate(where))
    return Person(table.services.lake, opened, keys)


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
