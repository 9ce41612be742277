"""Steps on the same records by both engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.config.masking_keys import Key, hashing
from calve.config.steps import Step
from calve.modes.mode import APPEND
from calve.names import SYSTEM_COLUMN, quote
from calve.schema.columns import Json
from glue_jobs.columns.expressions import FILTERED, OFFSET, REJECT, at
from glue_jobs.columns.tokens import any_keys, key_frame
from glue_jobs.engines.columnar_steps.chain import Steps
from glue_jobs.engines.columnar_steps.planning import columnar_steps
from glue_jobs.table.open_table import RowPlan
from glue_jobs.transform.chain import Chain, StepResources
from glue_jobs.transform.row_columns import data
from glue_jobs.transform.types import iceberg_columns

KAFKA = (
    "struct<topic: string, partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int, key: binary,"
    " headers: array<struct<key: string, value: binary>>, schema_id: int>"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What steps make of records. rows: as text, since no number is equal to NaN. rejected: offsets."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[str, ...]
    rejected: tuple[int, ...]
    left_out: int
    made: int | None = None
    failed: int = 0
    cut: int = 0


def planned(records: DataFrame, steps: Sequence[Step]) -> Steps:
    """Steps on records of these columns, for a table that has them, too."""
    chain, source = Chain(tuple(steps), StepResources(_no_keys, _none)), _columns(records)
    return columnar_steps(chain, records.sparkSession, source, source)


def same(
    records: DataFrame,
    steps: Sequence[Step],
    keys: Sequence[Key] = (),
    *,
    tags: Mapping[str, tuple[str, ...]] | None = None,
    columns: Json = None,
) -> Outcome:
    """What both engines make of records with data columns and `_kafka`, in which no offset stands twice.

    columns: the data columns of the table; None: those that come of the steps.
    """
    spark, frame = records.sparkSession, records.coalesce(1).localCheckpoint()
    chain = Chain(
        tuple(steps),
        StepResources(
            lambda by: key_frame(spark, hashing(keys, by)) if keys else any_keys(spark), _none, tags or {}
        ),
    )
    source = _columns(frame)
    columns = columns or chain.columns(spark, source)
    by_rows = _by_rows(frame, RowPlan(source, columns, chain, columns, APPEND))
    by_columns = _by_columns(frame, chain, source, columns, keys)
    for place, (one, other) in enumerate(zip(by_rows.rows, by_columns.rows, strict=False)):
        assert one == other, place
    assert by_rows == by_columns
    return by_columns


def _by_rows(frame: DataFrame, row_plan: RowPlan) -> Outcome:
    judged = row_plan.chain.of_records(frame).localCheckpoint()
    good, counted = row_plan.rows(judged)
    columns, texts = _told(good.toArrow())
    rejected: Sequence[int] = []
    if REJECT in judged.columns:
        found = judged.where(F.col(REJECT).isNotNull()).select(at(OFFSET).alias("offset"))
        rejected = sorted(row["offset"] for row in found.collect())
    left_out = judged.where(F.col(FILTERED)).count() if FILTERED in judged.columns else 0
    if counted is None:
        return Outcome(columns, texts, tuple(rejected), left_out)
    return Outcome(
        columns, texts, tuple(rejected), left_out, *(int(counted.get[n]) for n in ("made", "failed", "cut"))
    )


def _by_columns(frame: DataFrame, chain: Chain, source: Json, columns: Json, keys: Sequence[Key]) -> Outcome:
    batch = frame.toArrow()
    offsets = batch[SYSTEM_COLUMN].combine_chunks().field("offset")
    planned = columnar_steps(chain, frame.sparkSession, source, columns)
    carried: Steps = cloudpickle.loads(cloudpickle.dumps(planned))
    parts = list(carried.run(batch, keys))
    told, texts = _told(pa.concat_tables([each.rows for each in parts]))
    rejected = sorted(
        offset for each in parts for offset in offsets.take(pa.array(each.rejected)).to_pylist()
    )
    several = parts[0].made is not None
    return Outcome(
        told,
        texts,
        tuple(rejected),
        sum(len(each.filtered) for each in parts),
        sum(each.made or 0 for each in parts) if several else None,
        sum(each.failed for each in parts),
        sum(each.cut for each in parts),
    )


def _columns(frame: DataFrame) -> Json:
    return iceberg_columns(frame.select(*map(quote, data(frame))).schema)


def _no_keys(_: str | None) -> DataFrame:
    raise AssertionError("nothing is hashed")


def _none(_: object) -> DataFrame:
    raise AssertionError("no step looks anything up")


def _told(table: pa.Table) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    plain = pa.schema([(each.name, _plain(each.type)) for each in table.schema])
    columns = tuple((each.name, str(_plain(each.type, moments=True))) for each in table.schema)
    listed = table.cast(plain).to_pylist()
    return columns, tuple(map(repr, listed))


def _plain(kind: pa.DataType, *, moments: bool = False) -> pa.DataType:
    """Numbers for days and moments, of which Python does not have all, and bytes for texts, which need be none."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _plain(each.type, moments=moments)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type, moments=moments), _plain(kind.item_type, moments=moments))
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type, moments=moments))
    if moments:
        return kind
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind
