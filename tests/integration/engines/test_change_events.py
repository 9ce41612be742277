"""Change events opened as Arrow columns are the rows and changes that Spark's expressions make of them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from calve.decoding.decode_plan import DecodePlan
from calve.schema.change_events import UNAVAILABLE, of_event
from calve.schema.columns import CHANGE, FIRST_MICROS, LAST_MICROS, MOST_MILLIS, Json, field, struct
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.expressions import DECODED, IDLE, TOMBSTONE
from glue_jobs.decode.machines.change_events import Events, lacking
from glue_jobs.process.workers import map_in_arrow
from glue_jobs.transform.row_columns import lacks_values as lacks_values_by_rows
from tests.columnar import plain
from tests.spark_decoder.change_events import is_bad, tombstones_and_idle, with_rows

TIMES = struct(field("day", "date"), field("at", "timestamptz"), field("n", "int"))
ROW = struct(
    field("id", "long"),
    field("note", "string"),
    field("content", "binary"),
    field("code", "fixed[28]"),
    field("tags", {"type": "list", "element": "string", "element-required": False}),
    field("labels", {"type": "map", "key": "string", "value": "int", "value-required": False}),
    field("day", "date"),
    field("local", "timestamp"),
    field("nested", TIMES),
    field("listed", {"type": "list", "element": TIMES, "element-required": False}),
    field("by_name", {"type": "map", "key": "string", "value": "timestamp", "value-required": False}),
    field("price", "decimal(10, 2)"),
)
DAYS = (-719_163, -719_162, 0, 2_932_896, 2_932_897, 2**31 - 1, -(2**31))
MICROS = (FIRST_MICROS - 1, FIRST_MICROS, -1, LAST_MICROS, LAST_MICROS + 1, 2**63 - 1, -(2**63))
TEXTS = ("", "7", "00000000000000000008", "123456789012345678901", "-3", "x/7", "٣", " 7", "7\n", UNAVAILABLE)
NUMBERS = (0, 7, 10**18, 2**63 - 1, -1, -(2**63))
OPS = ("c", "r", "u", "u", "d", "t", "m", "x", "", None)


@pytest.mark.parametrize(
    "order", [(), ("lsn",), ("file", "pos"), ("ts_ms",)], ids=lambda each: "+".join(each)
)
def test_events_are_the_same_rows_by_columns(spark: SparkSession, order: tuple[str, ...]) -> None:
    dice = Random(17)
    kind = of_event(ROW, order)
    values = [Values(dice).of(kind, "event") for _ in range(600)]
    values = [None if dice.random() < 0.02 else each for each in values]
    does = Events(DecodePlan((), columns=kind), order).opened(pa.array(values, arrow_type(kind)))
    rows = by_rows(spark, values, kind, order)
    written = [each["name"] for each in ROW["fields"]] + [CHANGE["name"]]
    assert does.rows.schema.names == written
    for name in written:
        assert plain(does.rows[name]) == plain(rows[name]), name
        assert does.rows.schema.field(name).type == arrow_type(CHANGE["type"]) or name != CHANGE["name"]
    does.rows.validate(full=True)
    assert does.bad.tolist() == rows["bad"].to_pylist()
    assert does.idle.tolist() == rows["idle"].to_pylist()
    assert does.deletes.tolist() == rows["deletes"].to_pylist()
    assert does.truncates.tolist() == [each is not None and each["op"] == "t" for each in values]
    lacks = np.logical_or.reduce([*lacking(pa.table(does.rows)).values()])
    assert lacks.tolist() == rows["lacking"].to_pylist()
    for found in (does.bad, does.idle, does.deletes, lacks):
        assert 0 < found.sum() < len(found)


def test_a_slice_of_events_is_opened_alone() -> None:
    dice, kind = Random(18), of_event(ROW, ("lsn",))
    events = pa.array([Values(dice).of(kind, "event") for _ in range(90)], arrow_type(kind))
    reader = Events(DecodePlan((), columns=kind), ("lsn",))
    whole, part = reader.opened(events), reader.opened(events.slice(30, 40))
    assert part.rows.equals(whole.rows.slice(30, 40))
    of_part, of_whole = lacking(pa.table(part.rows)), lacking(pa.table(whole.rows))
    assert of_part
    for name, each in of_whole.items():
        assert np.array_equal(of_part.get(name, np.zeros(40, bool)), each[30:70])


def schema_of(batch: pa.RecordBatch) -> StructType:
    found: StructType = from_arrow_schema(batch.schema)
    return found


def by_rows(spark: SparkSession, values: list[Any], kind: Json, order: tuple[str, ...]) -> pa.Table:
    """What the row engine makes of the same events."""
    events = pa.array(values, arrow_type(kind, fixed=False))
    batch = pa.record_batch({"n": pa.array(range(len(events))), "event": events})
    frame = map_in_arrow(spark.range(1, numPartitions=1), lambda _: iter([batch]), schema_of(batch))
    decoded = F.struct(F.col("event").alias("value"), F.lit(b"end").alias("end"))
    made = with_rows(frame.select("n", decoded.alias(DECODED["value"]), F.lit(b"").alias("value")), order)
    marks = tombstones_and_idle(made, deletes=True, keep_deleted=False)
    judged = {"bad": is_bad(made), "deletes": marks[TOMBSTONE], "idle": marks[IDLE]}
    names = (*(each["name"] for each in ROW["fields"]), CHANGE["name"])
    row = [F.col(DECODED["value"])["value"][name].alias(name) for name in names]
    flat = made.select("n", *(each.alias(name) for name, each in judged.items()), *row)
    lacking = lacks_values_by_rows(flat.drop("n", *judged))
    return flat.withColumn("lacking", lacking).orderBy("n").toArrow()


class Values:
    """Random values of columns, with those that rules are about."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.leaves: dict[str, Callable[[], Any]] = {
            "long": lambda: dice.choice(
                (*NUMBERS, *MICROS, *(each * MOST_MILLIS + each for each in (-1, 1)), MOST_MILLIS)
            ),
            "int": lambda: dice.choice((0, 2**31 - 1)),
            "string": lambda: dice.choice(TEXTS),
            "binary": lambda: dice.choice(TEXTS).encode(),
            "fixed[28]": lambda: dice.choice((b"x" * 28, UNAVAILABLE.encode())),
            "date": lambda: dice.choice(DAYS),
            "timestamp": lambda: dice.choice(MICROS),
            "timestamptz": lambda: dice.choice(MICROS),
            "decimal(10, 2)": lambda: Decimal("1.25"),
        }

    def of(self, kind: Json, name: str = "") -> Any:
        if name == "op":
            return self.dice.choice(OPS)
        if name not in ("event", "element", "key") and self.dice.random() < 0.15:
            return None
        if isinstance(kind, str):
            return self.leaves[kind]()
        match kind["type"]:
            case "struct":
                return {each["name"]: self.of(each["type"], each["name"]) for each in kind["fields"]}
            case "list":
                return [self.of(kind["element"]) for _ in range(self.dice.choice((0, 1, 1, 2)))]
        return {
            self.of(kind["key"], "key"): self.of(kind["value"]) for _ in range(self.dice.choice((0, 1, 1, 2)))
        }
