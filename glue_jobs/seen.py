"""Counting in passing: what one observation at the source, above the decoder, says of a read (design: no second read to count).

Observations are exact for appends, hash distribution, retried tasks and speculation. They are wrong under range distribution,
where Spark samples its input first: writes therefore never use the table's distribution (`glue_jobs.layout` clusters).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from calve.columns import REASONS
from calve.decoding import Decoding
from calve.names import SYSTEM_COLUMN
from calve.position import Offsets
from calve.rejects import MAX_GROUPS, Group
from glue_jobs.decode import REJECT, SCHEMA_ID, SIZE, Part, framed_number, is_framed

MAX_UNKNOWN_IDS = 1_000
KAFKA_OFFSET = f"{SYSTEM_COLUMN}.offset"
KAFKA_TIMESTAMP = f"{SYSTEM_COLUMN}.timestamp"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a read held. `newest` and `oldest` are record timestamps in seconds since epoch.

    `reject_range`: first and last offset (inclusive) that a reject had in any partition.
    """

    records: int = 0
    rejects: int = 0
    size_bytes: int = 0
    newest: float | None = None
    oldest: float | None = None
    reject_range: tuple[int, int] | None = None


def observe_records(flat: DataFrame) -> tuple[DataFrame, Observation]:
    """Count records, rejects and bytes while they pass.

    Seven figures and no more: each costs every record. What they leave open is looked up in the rare rounds that need it,
    the range of rejects by partition by their second read, the records by partition by `count_by_partition`.
    """
    rejected_at = F.when(F.col(REJECT).isNotNull(), F.col(KAFKA_OFFSET))
    found: dict[str, Column] = {
        "records": F.count(F.lit(1)),
        "rejects": F.count(REJECT),
        "bytes": F.sum(SIZE),
        "newest": F.unix_millis(F.max(KAFKA_TIMESTAMP)),
        "oldest": F.unix_millis(F.min(KAFKA_TIMESTAMP)),
        "first": F.min(rejected_at),
        "last": F.max(rejected_at),
    }
    return _observe(flat, found)


def seen_records(observation: Observation) -> Seen:
    """What the observation counted, once the action has run."""
    got: dict[str, Any] = observation.get
    return Seen(
        records=int(got["records"]),
        rejects=int(got["rejects"]),
        size_bytes=int(got["bytes"] or 0),
        newest=_seconds(got["newest"]),
        oldest=_seconds(got["oldest"]),
        reject_range=(int(got["first"]), int(got["last"])) if got["rejects"] else None,
    )


def count_by_partition(records: DataFrame) -> Offsets:
    """The number of records of each partition that has any; reads Kafka once more, without decoding."""
    return {row["partition"]: row["count"] for row in records.groupBy("partition").count().collect()}


def observe_rejects(decoded: DataFrame) -> tuple[DataFrame, Observation]:
    """Count rejects by reason while they pass."""
    return _observe(decoded, {reason: F.count_if(F.col(REJECT) == reason) for reason in REASONS})


def seen_reasons(observation: Observation) -> dict[str, int]:
    return {reason: int(count) for reason, count in observation.get.items() if count}


def reject_groups(decoded: DataFrame) -> tuple[Group, ...]:
    """The largest groups of rejects by reason and schema id, each with its first place; so many that a flood stays bounded."""
    grouped = decoded.where(F.col(REJECT).isNotNull()).groupBy(F.col(REJECT), F.col(SCHEMA_ID))
    counted = grouped.agg(
        F.count(F.lit(1)).alias("records"), F.min(F.struct("partition", "offset")).alias("first")
    )
    largest = counted.orderBy(F.desc("records"), "first").limit(MAX_GROUPS).collect()
    return tuple(Group(row[0], row[1], row[2], row[3]["partition"], row[3]["offset"]) for row in largest)


def unknown_ids(records: DataFrame, decoding: Decoding) -> tuple[list[int], list[int]]:
    """Schema ids framed in values, and in keys, that the round does not know; at most 1,000, so that a flood stays bounded."""
    keys = _unknown_ids(records, decoding.key, "key") if decoding.key else []
    return _unknown_ids(records, decoding, "value"), keys


def _unknown_ids(records: DataFrame, decoding: Decoding, part: Part) -> list[int]:
    if not decoding.wire.size:
        return []
    number = framed_number(decoding.wire, part).alias("id")
    ids = records.where(is_framed(decoding.wire, part)).select(number).distinct()
    unknown = ids.where(~F.col("id").isin(*decoding.ids, -1))
    return sorted(row["id"] for row in unknown.limit(MAX_UNKNOWN_IDS).collect())


def _observe(frame: DataFrame, found: dict[str, Column]) -> tuple[DataFrame, Observation]:
    observation = Observation()
    return frame.observe(observation, *(column.alias(name) for name, column in found.items())), observation


def _seconds(moment: Any) -> float | None:
    return None if moment is None else moment / 1000
