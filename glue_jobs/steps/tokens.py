"""Tokens: the HMAC-SHA-256 of a value, by keys that no plan shows.

A literal of an expression stands in every plan of the query, and so in event logs and in the texts of errors. The keys are the
one row of a frame instead, broadcast to where they are needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from calve.masking import Key, read_keys
from calve.names import quote
from glue_jobs.keys import TIMESTAMP, at
from glue_jobs.verdicts import case

KEY = "calve:masking_key"
"""The key that hashes the row's values."""
BLOCK_BYTES = 64
"""Of SHA-256. A longer key is hashed before it is padded (RFC 2104)."""
READ_EVERY_S = 300.0
KEY_TYPE = "struct<id: string, since: timestamp, inner: binary, outer: binary>"


def key_frame(spark: SparkSession, keys: Sequence[Key]) -> DataFrame:
    """One row with a column for each key, the one that counts first coming first. Made in the JVM: by way of Python it would be
    written to a file.
    """
    jvm = spark._jvm
    ddl = ", ".join(f"{quote(f'calve:masking:{n}')} {KEY_TYPE}" for n in range(len(keys)))
    rows = jvm.java.util.ArrayList()  # type: ignore[union-attr]
    rows.add(_row(spark, [_row(spark, [each.id, _since(spark, each), *_pads(each)]) for each in keys]))
    kind = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)  # type: ignore[union-attr]
    return DataFrame(spark._jsparkSession.createDataFrame(rows, kind), spark)


@dataclass(slots=True)
class MaskingKeys:
    """The keys of a secret, read anew every five minutes: one that is added counts from its time on without a restart."""

    spark: SparkSession
    reference: str
    _frame: DataFrame | None = None
    _read_at: float = 0.0

    def frame(self) -> DataFrame:
        """As `key_frame`.

        Raises:
            ConfigError, Retryable: as `calve.masking.read_keys`.
        """
        now = time.monotonic()
        if self._frame is None or now - self._read_at > READ_EVERY_S:
            self._frame, self._read_at = key_frame(self.spark, read_keys(self.reference)), now
        return self._frame


def any_keys(spark: SparkSession) -> DataFrame:
    """A key that nobody has: for looking at columns, and at rows that are not kept."""
    return key_frame(spark, [Key("preview", 0, os.urandom(BLOCK_BYTES))])


def with_key(frame: DataFrame, keys: DataFrame) -> DataFrame:
    """The frame with `KEY`: the last of the keys (`key_frame`) whose time had begun when the record was made, else the first."""
    first, *later = [F.col(quote(name)) for name in keys.columns]
    begun = [(at(TIMESTAMP) >= each["since"], each) for each in reversed(later)]
    found = case(begun, first) if begun else first
    columns = [F.col(quote(name)) for name in frame.columns]
    return frame.crossJoin(F.broadcast(keys)).select(*columns, found.alias(KEY))


def token(data: Column) -> Column:
    """`<id of the key>:<64 hex digits>` of bytes, by the row's `KEY`; null of null."""
    key = F.col(quote(KEY))
    inner = F.unhex(F.sha2(F.concat(key["inner"], data), 256))
    return F.concat(key["id"], F.lit(":"), F.sha2(F.concat(key["outer"], inner), 256))


def _pads(key: Key) -> tuple[bytes, bytes]:
    """What stands before the data of the inner and of the outer hash."""
    secret = sha256(key.secret).digest() if len(key.secret) > BLOCK_BYTES else key.secret
    block = secret.ljust(BLOCK_BYTES, b"\0")
    return bytes(each ^ 0x36 for each in block), bytes(each ^ 0x5C for each in block)


def _since(spark: SparkSession, key: Key) -> object:
    seconds, rest_us = divmod(key.since_us, 10**6)
    return spark._jvm.java.time.Instant.ofEpochSecond(seconds, rest_us * 1_000)  # type: ignore[union-attr]


def _row(spark: SparkSession, values: Sequence[object]) -> object:
    gateway, jvm = spark._sc._gateway, spark._jvm
    array = gateway.new_array(jvm.Object, len(values))  # type: ignore[union-attr]
    for place, value in enumerate(values):
        array[place] = value
    return jvm.org.apache.spark.sql.RowFactory.create(array)  # type: ignore[union-attr]
