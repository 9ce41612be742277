"""Counts of a read, from one Spark observation above the decoder, so that counting needs no second read.

Observations are exact for appends, hash distribution, retried tasks and speculation.
They are wrong under range distribution, because Spark samples its input first.
So writes never use the table's distribution (`glue_jobs.iceberg.layout` clusters instead).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from calve.config.job import PartName
from calve.config.steps import UNMET
from calve.decoding.decode_plan import MAX_OTHERS, DecodePlan
from calve.rounds.dead_letter_policy import MAX_GROUPS, Group, Rejects
from calve.schema.columns import REASONS
from calve.schema.wire import FIRST_GUID, GUID_SIZE, Wire
from calve.table.position import Offsets
from glue_jobs.columns.expressions import (
    FILTERED,
    OFFSET,
    OTHER,
    PARTITION,
    RECEIVED,
    REJECT,
    RULE,
    SIZE,
    TIMESTAMP,
    false,
    named_column,
)
from glue_jobs.table.records import explained

MAX_UNKNOWN_IDS = 1_000
MAX_RULES = 1_000
"""More than a table has steps: then its histogram counts each one."""
RANKS = 200
"""The rank error of a timestamp percentile is at most one in 200."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one read.

    `newest`, `median`, `late` and `oldest` are record timestamps in epoch seconds; 5 % of the records are older than
    `late`.
    `reject_range`: lowest and highest offset (inclusive) of a reject in any partition.
    `others`: records of other tables, by the index of their schema in `DecodePlan.other_ids`. The last index counts
    all further ones.
    `changes`: of an upsert or aggregate table, the rows that are new or replace others.
    `duplicates`: good records without a row, because the table holds the first record of their key.
    `truncates`: events that empty a table. `unavailable`: updates that lack a value. `left_out`: good records that a
    step filtered. `by_rule`: these, and `cut`, by the number of the step.
    `made`: rows, where a record may make several. `failed` of these could not be computed; a step after the explosion
    filtered `cut`.
    """

    records: int = 0
    rejects: int = 0
    size_bytes: int = 0
    newest: float | None = None
    oldest: float | None = None
    median: float | None = None
    late: float | None = None
    reject_range: tuple[int, int] | None = None
    others: Mapping[int, int] = field(default_factory=dict)
    changes: int | None = None
    duplicates: int = 0
    truncates: int = 0
    unavailable: int = 0
    left_out: int = 0
    made: int | None = None
    failed: int = 0
    cut: int = 0
    by_rule: Mapping[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        if self.changes is not None:
            return self.changes
        return self.applied if self.made is None else self.made - self.cut

    @property
    def applied(self) -> int:
        """Good records without duplicates."""
        return self.records - self.filtered - self.rejects - self.duplicates

    @property
    def filtered(self) -> int:
        """Records that belong to other tables or that a step filtered."""
        return self.records - self.own + self.left_out

    @property
    def own(self) -> int:
        return self.records - sum(self.others.values())


def observe_records(
    flat: DataFrame, further: Mapping[str, Column] | None = None
) -> tuple[DataFrame, Observation]:
    """Count records, rejects and bytes while Spark reads them, and the `further` fields of `Counts`.

    If no record can belong to another table, only eight values are counted, because each costs time for every record.
    Rare rounds look up the rest: their second read finds the rejects' range, `count_by_partition` the records per
    partition. A histogram with more bins than values is an exact count of each value.
    """
    rejected_at = F.when(F.col(REJECT).isNotNull(), F.col(OFFSET))
    found: dict[str, Column] = {
        "records": F.count(F.lit(1)),
        "rejects": F.count(REJECT),
        "size_bytes": F.sum(SIZE),
        "newest": F.unix_millis(F.max(TIMESTAMP)),
        "oldest": F.unix_millis(F.min(TIMESTAMP)),
        "aged": F.percentile_approx(F.unix_millis(TIMESTAMP), [0.5, 0.05], RANKS),
        "first": F.min(rejected_at),
        "last": F.max(rejected_at),
    }
    if OTHER in flat.columns:
        # As doubles: partial sums of equal values may differ from the integer by a rounding error. A cast to int
        # would cut it.
        found["others"] = F.histogram_numeric(F.col(OTHER).cast("double"), F.lit(2 * (MAX_OTHERS + 1)))
    if FILTERED in flat.columns:
        found |= {"left_out": F.count_if(FILTERED), "by_rule": _by_rule(F.col(FILTERED))}
    return _observe(flat, found | dict(further or {}))


def counted_records(observation: Observation) -> Counts:
    got: dict[str, Any] = observation.get
    names = ("records", "rejects", "size_bytes", "truncates", "unavailable", "left_out")
    times = dict(zip(("median", "late"), got["aged"] or (None, None), strict=True))
    times |= {"newest": got["newest"], "oldest": got["oldest"]}
    seconds: dict[str, Any] = {
        name: None if millis is None else millis / 1000 for name, millis in times.items()
    }
    return Counts(
        **{name: int(got.get(name) or 0) for name in names},
        **seconds,
        reject_range=(int(got["first"]), int(got["last"])) if got["rejects"] else None,
        others=_of_histogram(got.get("others")),
        by_rule=_of_histogram(got.get("by_rule")),
    )


def _by_rule(chosen: Column) -> Column:
    """A histogram of `RULE` of chosen rows. As doubles, for the reason of `others` above."""
    return F.histogram_numeric(F.when(chosen, F.col(RULE)).cast("double"), F.lit(2 * MAX_RULES))


def _of_histogram(bins: Any) -> Counter[int]:
    found: Counter[int] = Counter()
    for value, count in bins or ():
        found[round(value)] += round(count)
    return found


def observe_rows(made: DataFrame) -> tuple[DataFrame, Observation]:
    """Count the rows while Spark reads them, where a record may make several."""
    found = {"made": F.count(F.lit(1)), "failed": F.count(REJECT) if REJECT in made.columns else F.lit(0)}
    if FILTERED not in made.columns:
        return _observe(made, found | {"cut": F.lit(0)})
    return _observe(made, found | {"cut": F.count_if(FILTERED), "by_rule": _by_rule(F.col(FILTERED))})


def with_counted_rows(counts: Counts, observation: Observation) -> Counts:
    found: dict[str, Any] = observation.get
    by_rule = Counter(counts.by_rule) + _of_histogram(found.get("by_rule"))
    made, failed, cut = (int(found[name]) for name in ("made", "failed", "cut"))
    return replace(counts, made=made, failed=failed, cut=cut, by_rule=by_rule)


def count_by_partition(records: DataFrame) -> Offsets:
    """The number of records of each partition that has any. Reads Kafka once more, without decoding."""
    return {row["partition"]: row["count"] for row in records.groupBy("partition").count().collect()}


def observe_rejects(decoded: DataFrame) -> tuple[DataFrame, Observation]:
    found = {reason: F.count_if(F.col(REJECT) == reason) for reason in REASONS}
    if RULE in decoded.columns:
        found[RULE] = _by_rule(F.col(REJECT) == UNMET)
    return _observe(decoded, found)


def counted_rejects(observation: Observation) -> Rejects:
    """Without groups."""
    found: dict[str, Any] = dict(observation.get)
    unmet = _of_histogram(found.pop(RULE, None))
    return Rejects({reason: int(count) for reason, count in found.items() if count}, unmet=unmet)


def reject_groups(records: DataFrame, decoding: DecodePlan) -> tuple[Group, ...]:
    """The largest groups of rejects by reason and schema id, each with its first record; limited, so that a flood stays bounded.

    `records`: with `RECEIVED`.
    """
    wire = decoding.wire
    rejects = records.where(F.col(REJECT).isNotNull())
    place = (F.col(path).alias(path.split(".")[1]) for path in (PARTITION, OFFSET))
    received = F.col(RECEIVED)
    value = named_column("value", wire, received["value"], received["headers"]).alias("value")
    decoded = rejects.select(REJECT, value, *place, explained(decoding).alias("why"))
    framed = F.when(_is_framed(wire), _framed_hex(wire)).alias("id")
    first = F.min(F.struct("partition", "offset", "why")).alias("first")
    counted = decoded.groupBy(F.col(REJECT), framed).agg(F.count(F.lit(1)).alias("records"), first)
    largest = counted.orderBy(F.desc("records"), "first").limit(MAX_GROUPS).collect()
    return tuple(
        Group(reason, wire.name(int(hexadecimal, 16)) if hexadecimal else None, count, *earliest)
        for reason, hexadecimal, count, earliest in largest
    )


def unknown_ids(records: DataFrame, decoding: DecodePlan) -> tuple[list[int], list[int]]:
    """Schema ids in values and in keys that the round does not know; at most 1,000, so that a flood stays bounded."""
    keys = _unknown_ids(records, decoding.key, "key") if decoding.key else []
    return _unknown_ids(records, decoding, "value"), keys


def _unknown_ids(records: DataFrame, decoding: DecodePlan, part: PartName) -> list[int]:
    wire = decoding.wire
    if not wire.size:
        return []
    values = records.select(named_column(part, wire, F.col(part), F.col("headers")).alias("value"))
    ids = values.where(_is_framed(wire)).select(_framed_hex(wire).alias("id")).distinct()
    known = (_hex(wire, each) for each in decoding.ids)
    unknown = ids.where(~F.col("id").isin("", *known))
    return sorted(int(row["id"], 16) for row in unknown.limit(MAX_UNKNOWN_IDS).collect())


def _is_framed(wire: Wire) -> Column:
    """Whether the column `value` (`named_column`) begins with a schema id or a GUID."""
    begins = F.substring("value", 1, len(wire.magic))
    by_id = F.length("value") >= wire.size
    by_id &= begins.isin(*(F.lit(bytearray(each)) for each in wire.magics if each != wire.by_guid))
    return by_id | (_is_by_guid(wire) & (F.length("value") >= wire.guid_frame_size))


def _framed_hex(wire: Wire) -> Column:
    """This id or GUID, as hexadecimal digits."""
    of_id = F.substring("value", len(wire.magic) + 1, wire.size - len(wire.magic))
    of_guid = F.substring("value", len(wire.by_guid or b"") + 1, GUID_SIZE)
    return F.hex(F.when(_is_by_guid(wire), of_guid).otherwise(of_id))


def _hex(wire: Wire, schema_id: int) -> str:
    """As `_framed_hex`."""
    digits = 2 * (GUID_SIZE if schema_id >= FIRST_GUID else wire.size - len(wire.magic))
    return f"{schema_id:0{digits}X}"


def _is_by_guid(wire: Wire) -> Column:
    if wire.by_guid is None:
        return false()
    return F.substring("value", 1, len(wire.by_guid)) == F.lit(bytearray(wire.by_guid))


def _observe(frame: DataFrame, found: dict[str, Column]) -> tuple[DataFrame, Observation]:
    observation = Observation()
    return frame.observe(observation, *(column.alias(name) for name, column in found.items())), observation
