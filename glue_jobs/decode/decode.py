"""Decode records of Kafka or of dead letters in Spark, each to columns or to a reject reason. No Python per record.

The machines of both engines get values and keys as Arrow arrays, in the task that fetches them, or from Spark (ADR 53).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from calve.config.job import PartName
from calve.decoding.decode_plan import DecodePlan
from calve.modes.mode import APPEND, Mode
from calve.names import quote
from calve.schema.change_events import DELETES, SAYS, TRUNCATES
from calve.schema.columns import CHANGE, Json, field, struct
from glue_jobs.columns.expressions import (
    DECODED,
    IDLE,
    OTHER,
    REFUSED,
    REJECT,
    SCHEMA_ID,
    SIZE,
    TOMBSTONE,
    named_column,
    spark_type,
)

if TYPE_CHECKING:
    from glue_jobs.columns.buffers import PartOf
    from glue_jobs.decode.machines.judging import Judge

NOTHING = field("nothing", "boolean")
KEY_REASONS = ("incompatible_schema", "unknown_schema_id")


@dataclass(frozen=True, slots=True)
class Judged:
    """Values or keys that are judged. columns: of the structs of the good ones. order: of change events, as `Judge`."""

    decoding: DecodePlan
    columns: Json
    order: tuple[str, ...] | None = None

    @classmethod
    def of(cls, decoding: DecodePlan, mode: Mode) -> dict[PartName, Judged]:
        """The parts of a record that are judged: its value, and its key if that is read."""
        columns = struct(*(decoding.made or [NOTHING]))
        if mode.reads_changes:
            row = decoding.row_of_event
            value = cls(decoding, struct(*row["fields"], CHANGE), tuple(mode.source_order))
        else:
            value = cls(decoding, columns)
        if decoding.key is None:
            return {"value": value}
        return {
            "value": value,
            "key": cls(decoding.key, struct(*(decoding.key.columns["fields"] or [NOTHING]))),
        }

    @property
    def kind(self) -> str:
        """The type of `DECODED`."""
        return (
            f"struct<value: {spark_type(self.columns)}, reason: string, number: int, other: int, size: int>"
        )

    def judge(self) -> Judge:
        """Call this in a worker: where the job starts, it would compile."""
        from glue_jobs.decode.machines.judging import Judge

        return Judge(self.decoding, self.columns, self.order)


Judges = Callable[["PartOf"], list[pa.Array]]


def judging(decoding: DecodePlan, mode: Mode) -> tuple[T.StructType, Callable[[], Judges]]:
    """`DECODED` for `glue_jobs.kafka.source.read`: its columns, and how a worker makes them of records."""
    parts = Judged.of(decoding, mode)
    columns: Any = T.StructType.fromDDL(
        ", ".join(f"{quote(DECODED[part])} {each.kind}" for part, each in parts.items())
    )

    def judges() -> Judges:
        known = {part: each.judge() for part, each in parts.items()}
        return lambda part_of: [
            pa.concat_arrays([*judge.judge(*part_of(part, parts[part].decoding))])
            for part, judge in known.items()
        ]

    return columns, judges


def decode(records: DataFrame, decoding: DecodePlan, mode: Mode = APPEND) -> DataFrame:
    """Add `DECODED` in a Python task of its own, then what `marked` adds."""
    parts = Judged.of(decoding, mode)
    decoded = {DECODED[part]: _column(part, each) for part, each in parts.items()}
    return marked(records.withColumns(decoded), decoding, mode)


def _column(part: PartName, judged: Judged) -> Column:
    def judge(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        judge = judged.judge()
        for values, headers in batches:
            yield from judge.judge(values, headers=headers)

    made: Any = arrow_udf(judge, judged.kind)  # type: ignore[call-overload]
    value = named_column(part, judged.decoding.wire, F.col(part), F.col("headers"))
    headers = F.col("headers") if judged.decoding.event else F.lit(None)
    # Otherwise Spark evaluates it again for each condition on its result that it pushes down.
    return made.asNondeterministic()(value, headers)  # type: ignore[no-any-return]


def marked(decoded: DataFrame, decoding: DecodePlan, mode: Mode = APPEND) -> DataFrame:
    """Add `schema_id`, `REJECT` (a key of `REASONS`; null if good) and `SIZE` to records with `DECODED`.

    Keeps every column and every record; records `REFUSED` by the source stay so. It needs no raw value.
    The size is that of key and value in bytes, as received. If the key is read, it is decoded in the same way.
    `OTHER`: for records of other tables, the index of their schema in `DecodePlan.other_ids`, at most `MAX_OTHERS`. They have
    no `REJECT`. `TOMBSTONE` marks records that delete. A record without a value is then no reject.
    For change events, `DECODED` holds their rows, and `IDLE` marks events without a single row.
    """
    value, key, refused = (quote(each) for each in (DECODED["value"], DECODED["key"], REFUSED))
    other = f"CASE WHEN {refused} IS NULL THEN {value}.other END"
    reject, ours = f"coalesce({refused}, {value}.reason)", f"{value}.reason IS NULL AND ({other}) IS NULL"
    empty = f"({value}.size IS NULL AND {refused} IS NULL)"
    marks: dict[str, str] = {}
    if mode.reads_changes:
        op = f"{value}.value.{quote(CHANGE['name'])}.op"
        marks = _tombstones_and_idle(mode, op, empty)
        if mode.keeps_versions:
            reject = f"coalesce({reject}, CASE WHEN {op} = '{TRUNCATES}' THEN 'truncation' END)"
    elif mode.deletes:
        marks = {TOMBSTONE: empty}
    if marks:
        reject, ours = f"CASE WHEN NOT {empty} THEN {reject} END", f"({ours} OR {empty})"
    if decoding.key is not None:
        reject = f"coalesce({reject}, CASE WHEN {ours} THEN {_key_reason(key)} END)"
    judged = {
        SCHEMA_ID: f"{value}.number",
        REJECT: reject,
        SIZE: f"bigint(coalesce({value}.size, 0) + coalesce(length(`key`), 0))",
    }
    if decoding.others:
        judged[OTHER] = other
    return decoded.withColumns({name: F.expr(each) for name, each in (judged | marks).items()})


def _tombstones_and_idle(mode: Mode, op: str, empty: str) -> dict[str, str]:
    """Columns that mark deletions, and events without a single row: truncations, messages, tombstones without a key."""
    deleted = "false" if mode.keep_deleted else f"coalesce({op} = '{DELETES}', false)"
    idle = f"coalesce({op} IN ('{TRUNCATES}', '{SAYS}'), false)"
    if mode.deletes:
        return {TOMBSTONE: f"({deleted} OR {empty})", IDLE: idle}
    return {TOMBSTONE: deleted, IDLE: f"({idle} OR {empty})"}


def _key_reason(key: str) -> str:
    """The reject reason of a key; null if it is good, or if there is none."""
    known = ", ".join(f"'{each}'" for each in KEY_REASONS)
    reason = f"CASE WHEN {key}.reason IN ({known}) THEN concat('key_', {key}.reason) ELSE 'key_malformed' END"
    return f"CASE WHEN {key}.size IS NOT NULL AND {key}.reason IS NOT NULL THEN {reason} END"
