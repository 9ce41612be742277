"""Tokens: the HMAC-SHA-256 of a value, with keys that appear in no plan.

A literal would appear in every plan of the query, and so in event logs and error texts.
So the keys are the single row of a frame, which Spark broadcasts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from calve.config.masking_keys import BLOCK_BYTES, Key, hashing, pads, read_keys
from calve.names import quote
from glue_jobs.columns.expressions import TIMESTAMP, at, case

KEY = "calve:masking_key"
"""The key that hashes the row's values."""
READ_EVERY_S = 300.0
KEY_TYPE = "struct<id: string, since: timestamp, inner: binary, outer: binary>"


def key_frame(spark: SparkSession, keys: Sequence[Key]) -> DataFrame:
    """One row with a column for each key, in the order of the keys."""
    ddl = ", ".join(f"{quote(f'calve:masking:{n}')} {KEY_TYPE}" for n in range(len(keys)))
    return frame_of(
        spark, ddl, [[struct_of(spark, [each.id, _since(spark, each), *pads(each.secret)]) for each in keys]]
    )


def frame_of(spark: SparkSession, ddl: str, rows: Iterable[Sequence[object]]) -> DataFrame:
    """A frame created in the JVM, so that its values are in no file."""
    jvm = spark._jvm
    listed = jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for each in rows:
        listed.add(struct_of(spark, each))
    kind = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)  # type: ignore[union-attr]
    return DataFrame(spark._jsparkSession.createDataFrame(listed, kind), spark)


@dataclass(slots=True)
class MaskingKeys:
    """The keys of a secret, read again every five minutes: a new key applies from its time on, without a restart."""

    spark: SparkSession
    reference: str
    _read: tuple[float, tuple[Key, ...], dict[str | None, DataFrame]] | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """As `calve.config.masking_keys.read_keys`, including its errors."""
        return self._current()[1]

    def frame(self, masking_key: str | None) -> DataFrame:
        """As `key_frame`, of the key with this id, or of all. Raises the errors of `read_keys` and `hashing`."""
        _, keys, frames = self._current()
        if masking_key not in frames:
            frames[masking_key] = key_frame(self.spark, hashing(keys, masking_key))
        return frames[masking_key]

    def _current(self) -> tuple[float, tuple[Key, ...], dict[str | None, DataFrame]]:
        found, now = self._read, time.monotonic()
        if found is None or now - found[0] > READ_EVERY_S:
            found = self._read = (now, read_keys(self.reference), {})
        return found


def any_keys(spark: SparkSession) -> DataFrame:
    """A random key, for looking at columns, and for rows that are not kept."""
    return key_frame(spark, [Key("preview", 0, os.urandom(BLOCK_BYTES))])


def with_key(frame: DataFrame, keys: DataFrame) -> DataFrame:
    """The frame with `KEY`: the last key (`key_frame`) that was valid at the record's timestamp, else the first."""
    first, *later = [F.col(quote(name)) for name in keys.columns]
    begun = [(at(TIMESTAMP) >= each["since"], each) for each in reversed(later)]
    found = case(begun, first) if begun else first
    columns = [F.col(quote(name)) for name in frame.columns]
    return frame.crossJoin(F.broadcast(keys)).select(*columns, found.alias(KEY))


def token(data: Column) -> Column:
    """`<key id>:<64 hex digits>` of bytes, by the row's `KEY`; null stays null."""
    key = F.col(quote(KEY))
    return F.concat(key["id"], F.lit(":"), hmac_hex(key, data))


def hmac_hex(key: Column, data: Column) -> Column:
    """The HMAC-SHA-256 of bytes, in hexadecimal digits; `key` has the `pads`, as `inner` and `outer`."""
    inner = F.unhex(F.sha2(F.concat(key["inner"], data), 256))
    return F.sha2(F.concat(key["outer"], inner), 256)


def _since(spark: SparkSession, key: Key) -> object:
    seconds, rest_us = divmod(key.since_us, 10**6)
    return spark._jvm.java.time.Instant.ofEpochSecond(seconds, rest_us * 1_000)  # type: ignore[union-attr]


def struct_of(spark: SparkSession, values: Sequence[object]) -> object:
    """A Java row, or a struct in one."""
    gateway, jvm = spark._sc._gateway, spark._jvm
    array = gateway.new_array(jvm.Object, len(values))  # type: ignore[union-attr]
    for place, value in enumerate(values):
        array[place] = value
    return jvm.org.apache.spark.sql.RowFactory.create(array)  # type: ignore[union-attr]
