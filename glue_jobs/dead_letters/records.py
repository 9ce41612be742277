"""Dead letters as rows and as records. Tables that mask encrypt them when written, and decrypt them when decoded (ADR 22).

The cipher is AES-256-GCM: a random nonce of 12 bytes, the data, a tag of 16 bytes.
Each round has its own key: the HMAC-SHA-256 of its id with `calve.config.masking_keys.Key.seal`.
The ciphertext is bound to its column and its record's place. Elsewhere it does not decrypt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from calve.config.masking_keys import Key, pads
from calve.names import SYSTEM_COLUMN
from calve.requests.redrive import Request
from calve.schema.columns import DEAD_LETTERS, LATER, REDRIVEN, SEALED, UNDELIVERED
from glue_jobs.columns.expressions import REFUSED
from glue_jobs.columns.tokens import frame_of, hmac_hex, struct_of
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.staging import FILE

UNDECRYPTED = "calve:unopened"
"""True if no available key decrypts the dead letter. Its encrypted parts are null."""
BYTES = ("key", "value")
HEADERS = "headers"
PLACE = ("cluster_id", "topic_id", "partition", "offset")
"""The columns that identify a dead letter."""
RECORD = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key")
"""The columns of a table row that identify its record. No two records share all of them, though no incarnation is named."""
WITHOUT_KEY = RECORD[:-1]
"""The same without the key, which cannot be compared if the table hashes it or the dead letters encrypt it.

A record of another incarnation matches only with the same partition, offset and timestamp.
"""
SEAL, ROUND_KEY = "calve:seal", "calve:round_key"
SEAL_TYPE = "struct<id: string, inner: binary, outer: binary>"

Turn = Callable[[Column, Column], Column]
"""Data and its bound context -> the data encrypted or decrypted."""


def encrypted(dead_letters: DataFrame, key: Key) -> DataFrame:
    """The dead letters with encrypted keys, values and header values; null stays null."""
    keyed = _with_round_key(dead_letters.crossJoin(F.broadcast(_key_rows(dead_letters.sparkSession, [key]))))
    return keyed.withColumns(_turned(_seal) | {SEALED: F.col(SEAL)["id"]}).select(*dead_letters.columns)


def decrypted(dead_letters: DataFrame, keys: Sequence[Key]) -> DataFrame:
    """The dead letters with decrypted bytes, encrypted before or not, and `UNDECRYPTED`."""
    held = F.broadcast(_key_rows(dead_letters.sparkSession, keys))
    keyed = _with_round_key(dead_letters.join(held, F.col(SEALED) == F.col(SEAL)["id"], "left"))
    is_encrypted = F.col(SEALED).isNotNull()
    clear = {part: f"calve:opened:{part}" for part in (*BYTES, HEADERS)}
    found = keyed.withColumns({clear[part]: data for part, data in _turned(_open).items()})
    lost = (~_filled(part, part).eqNullSafe(_filled(part, name)) for part, name in clear.items())
    told = {UNDECRYPTED: is_encrypted & reduce(Column.__or__, lost)}
    told |= {part: F.when(is_encrypted, F.col(name)).otherwise(F.col(part)) for part, name in clear.items()}
    # All columns at once: decrypted parts are compared with the encrypted ones.
    return found.withColumns(told).select(*dead_letters.columns, UNDECRYPTED)


def _turned(turn: Turn) -> dict[str, Column]:
    found = {part: turn(F.col(part), _bound(F.lit(part))) for part in BYTES}
    headers = F.transform(
        HEADERS,
        lambda each, n: each.withField(
            "value", turn(each["value"], _bound(F.concat(F.lit(f"{HEADERS}."), n.cast("string"))))
        ),
    )
    return found | {HEADERS: headers}


def _seal(data: Column, bound: Column) -> Column:
    return F.aes_encrypt(data, F.col(ROUND_KEY), F.lit("GCM"), F.lit("DEFAULT"), F.lit(bytearray()), bound)


def _open(data: Column, bound: Column) -> Column:
    return F.try_aes_decrypt(data, F.col(ROUND_KEY), F.lit("GCM"), F.lit("DEFAULT"), bound)


def _bound(part: Column) -> Column:
    """The authenticated context: the column and the place of the record."""
    return F.concat_ws("/", part, *PLACE).cast("binary")


def _filled(part: str, name: str) -> Column:
    if part == HEADERS:
        return F.size(F.filter(name, lambda each: each["value"].isNotNull()))
    return F.col(name).isNotNull()


def _with_round_key(keyed: DataFrame) -> DataFrame:
    return keyed.withColumn(ROUND_KEY, F.unhex(hmac_hex(F.col(SEAL), F.col("round").cast("binary"))))


def _key_rows(spark: SparkSession, keys: Sequence[Key]) -> DataFrame:
    made = [struct_of(spark, [each.id, *pads(each.seal)]) for each in keys]
    return frame_of(spark, f"`{SEAL}` {SEAL_TYPE}", [[each] for each in made])


DEAD_LETTER = "calve:letter"
"""A column beside those of a record: the unchanged dead letter."""


def as_records(table: Table, request: Request, keys: Sequence[Key]) -> DataFrame:
    """The selected dead letters as records, each with its `DEAD_LETTER`, which stays encrypted, and `UNDECRYPTED`.

    Records that the source refused are refused again, because they are incomplete.
    """
    wanted = F.col(REDRIVEN).isNull()
    if request.reason is not None:
        wanted &= F.col("reason") == request.reason
    if request.schema_id is not None:
        wanted &= F.col("schema_id") == request.schema_id
    if request.since is not None:
        wanted &= F.col("rejected_at") >= F.lit(datetime.fromisoformat(request.since))
    if request.until is not None:
        wanted &= F.col("rejected_at") < F.lit(datetime.fromisoformat(request.until))
    return records_of(rows_at(table, table.head).where(wanted), keys)


def records_of(dead_letters: DataFrame, keys: Sequence[Key]) -> DataFrame:
    names = [each["name"] for each in DEAD_LETTERS["fields"]]
    found = decrypted(dead_letters.withColumn(DEAD_LETTER, F.struct(*names)), keys)
    return found.select(
        *(DEAD_LETTER, UNDECRYPTED),
        *("key", "value", "headers", "topic", "partition", "offset", "timestamp"),
        F.col("timestamp_type").alias("timestampType"),
        F.when(F.col("reason").isin(*UNDELIVERED), F.col("reason")).alias(REFUSED),
    )


def rows_at(table: Table, snapshot: int | None) -> DataFrame:
    """All rows of a dead-letter table at a snapshot, each with its `_file`. Older tables lack `LATER` columns."""
    found = table.rows_at(snapshot)
    lacking = {name: F.lit(None).cast("string") for name in LATER if name not in found.columns}
    return found.select("*", F.col(FILE)).withColumns(lacking)


def record_of(rows: DataFrame, names: Sequence[str] = RECORD) -> DataFrame:
    return rows.select(*(F.col(SYSTEM_COLUMN)[name].alias(name) for name in names))


def by_record(
    these: DataFrame, those: DataFrame, how: str, identified_by: Sequence[str] = RECORD
) -> DataFrame:
    """Join by columns that identify records in both frames. Null keys match each other."""
    others = those.select(*(F.col(name).alias(f"other_{name}") for name in identified_by))
    same = [F.col(name).eqNullSafe(F.col(f"other_{name}")) for name in identified_by]
    return these.join(others, same, how)
