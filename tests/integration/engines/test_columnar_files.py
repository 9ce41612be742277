"""Files that Arrow has written are to every reader, and to Iceberg's planner, what files of the same rows by Spark are."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from calve.config.spark_conf import CATALOG
from calve.errors import Retryable
from calve.names import TableName
from calve.schema.columns import KAFKA, Transform, field, struct
from calve.table.summary import settings
from cli.lake import open_catalog
from cli.look.query.answer import connect
from glue_jobs.engines.columnar.engine import data_files, layout_of, location_of, sweep
from glue_jobs.engines.columnar.parquet import Files
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.layout import clustered
from glue_jobs.iceberg.staging import Staged, discard, publish, stage
from glue_jobs.iceberg.storage import Storage
from tests.arrow_rows import ALL, EMPTY, KAFKA_ROW, ROW, plain
from tests.integration.support.engine import DATABASE, Engine
from tests.integration.support.records.avro_records import same
from tests.integration.support.stored import objects

MANIFEST = (
    "content", "file_format", "spec_id", "partition", "sort_order_id", "record_count",
    "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
)  # fmt: skip
"""What a manifest says of a data file, but for its place and its sizes."""
RESERVED = 2**31 - 200
Row = dict[str, Any]


def make(
    engine: Engine,
    columns: Any,
    partition_by: tuple[Transform, ...] = (),
    sort_by: tuple[Transform, ...] = (),
    properties: dict[str, str] | None = None,
) -> Table:
    name = TableName(DATABASE, f"t{uuid.uuid4().hex[:12]}")
    wanted = settings(300_000_000) | (properties or {})
    return engine.lake.create(
        name, columns, partition_by=partition_by, sort_by=sort_by, properties=wanted, summary={}
    )


def files_of(engine: Engine, table: Table) -> Files:
    """The files of a task that has not written any."""
    layout = layout_of(table, Storage.of(engine.spark))
    return Files(layout, location_of(table, f"{uuid.uuid4().hex}-0-0"))


def staged(engine: Engine, table: Table, *batches: pa.Table) -> Staged:
    files = files_of(engine, table)
    for each in batches:
        files.write(each)
    written = files.close()
    found = data_files(table, layout_of(table, Storage.of(engine.spark)), written)
    return Staged(found, sum(each.rows for each in written), sum(each.size for each in written))


def published(engine: Engine, table: Table, *batches: pa.Table) -> Table:
    publish(table, staged(engine, table, *batches), {}, lambda _: True)
    return table


def by_spark(engine: Engine, ours: Table, *wanted: Any, **properties: Any) -> Table:
    """The same rows in a table that Spark writes."""
    table = make(engine, ours.schema, *wanted, **properties)
    rows = clustered(engine.rows(ours.name.table), table, 1)
    publish(table, stage(table, rows, uuid.uuid4().hex), {}, lambda _: True)
    return table


def rows_of(engine: Engine, table: Table) -> list[Row]:
    return list(engine.rows(table.name.table).toArrow().to_pylist())


def manifests(engine: Engine, table: Table) -> list[Row]:
    """What they say of the table's data files, but for columns of Iceberg's own, which Spark writes into files of format 3: all
    of their values are null.
    """
    found = engine.spark.table(f"{CATALOG}.{DATABASE}.{table.name.table}.files").toArrow().to_pylist()
    held = [{name: _own(each.get(name)) for name in MANIFEST} for each in found]
    return sorted(held, key=lambda each: repr(each["partition"]))


def _own(value: Any) -> Any:
    """Without the ids that Iceberg keeps for itself."""
    return [pair for pair in value if pair[0] < RESERVED] if isinstance(value, list) else value


@pytest.mark.parametrize(("format_version", "page_version"), [("2", "v1"), ("2", "v2"), ("3", "v1")])
def test_every_reader_and_the_manifests_see_what_spark_would_have_written(
    engine: Engine, format_version: str, page_version: str
) -> None:
    properties = {"format-version": format_version, "write.parquet.page-version": page_version}
    extremes = ROW | {
        "double": math.nan,
        "float": -math.inf,
        "long": -(2**63),
        "int": 2**31 - 1,
        "string": "long " * 20,
        "binary": b"\xff" * 40,
        "date": date(9999, 12, 31),
        "timestamptz": datetime(1, 1, 1, tzinfo=UTC),
        "_kafka": KAFKA_ROW | {"headers": None, "key": None, "offset": 2**40 + 1},
    }
    held = pa.Table.from_pylist([ROW, EMPTY | {"_kafka": KAFKA_ROW}, extremes], schema=plain(ALL))
    ours = published(engine, make(engine, ALL, properties=properties), held)
    sparks = by_spark(engine, ours, properties=properties)
    assert same(rows_of(engine, ours)) == same(held.to_pylist()) == same(rows_of(engine, sparks))
    assert manifests(engine, ours) == manifests(engine, sparks)
    catalog = open_catalog(engine.job().lake)
    ours_seen, sparks_seen = (catalog.load_table((DATABASE, each.name.table)) for each in (ours, sparks))
    assert same(ours_seen.scan().to_arrow().to_pylist()) == same(sparks_seen.scan().to_arrow().to_pylist())
    with connect(engine.job().lake) as duckdb:
        read = [
            duckdb.execute("SELECT * FROM iceberg_scan(?)", [each.metadata_location]).to_arrow_table()
            for each in (ours_seen, sparks_seen)
        ]
    assert same(read[0].to_pylist()) == same(read[1].to_pylist())


def test_spark_reads_columns_alone_by_its_vectorised_reader(engine: Engine) -> None:
    """It is not used where a struct is read, too."""
    count = 10_000
    columns = struct(
        *(field(name, kind) for name, kind in (("id", "string"), ("n", "long"), ("at", "timestamptz")))
    )
    rows = pa.table(
        {
            "id": [f"trade-{n:08d}" for n in range(count)],
            "n": range(count),
            "at": pa.array(range(count), pa.timestamp("us", "UTC")),
        }
    )
    for version in ("v1", "v2"):
        table = published(
            engine, make(engine, columns, properties={"write.parquet.page-version": version}), rows
        )
        assert engine.rows(table.name.table).toArrow().sort_by("n").to_pylist() == rows.to_pylist()


LAID_OUT = struct(
    field("side", "string"),
    field("code", "int"),
    field("blob", "binary"),
    field("day", "date"),
    field("at", "timestamptz"),
    field("local", "timestamp"),
    field("price", "decimal(9, 2)"),
    field("large", "decimal(38, 10)"),
    field("item", struct(field("sku", "string"))),
    field("real", "double"),
    KAFKA,
)


def order(number: int) -> Row:
    """Values on both sides of every boundary: before 1970, negative, null, of the first and the last year."""
    moment = datetime(1969, 12, 31, 22, tzinfo=UTC) + timedelta(minutes=45 * number)
    moment = (
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)][number] if number < 2 else moment
    )
    return {
        "side": None if number % 5 == 4 else ("BUY" if number % 2 else "žąsis/ =%"),
        "code": None if number % 7 == 6 else number - 10,
        "blob": bytes([number % 3, 255]),
        "day": moment.date(),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "price": Decimal(number - 10) / 4,
        "large": Decimal(number - 10).scaleb(26),
        "item": {"sku": "žąsis"[: 1 + number % 3]} if number % 4 else None,
        "real": [0.5, -0.5, math.nan, None, math.inf][number % 5],
        "_kafka": KAFKA_ROW | {"offset": number, "partition": number % 4},
    }


PARTITIONS = [
    (Transform("side"), Transform("_kafka.partition")),
    (Transform("day"), Transform("blob", "truncate", 1)),
    (Transform("at"), Transform("local")),
    (Transform("price"), Transform("large", "truncate", 7), Transform("blob")),
    (Transform("at", "year"), Transform("local", "month"), Transform("code", "truncate", 7)),
    (Transform("day", "day"), Transform("price", "truncate", 250), Transform("item.sku", "truncate", 2)),
    (Transform("at", "hour"), Transform("day", "year")),
    tuple(
        Transform(each, "bucket", 7)
        for each in ("side", "code", "blob", "day", "at", "local", "price", "large")
    ),
]


@pytest.mark.parametrize("fields", PARTITIONS, ids=lambda fields: "-".join(map(str, fields)))
def test_partition_tuples_are_those_of_spark(engine: Engine, fields: tuple[Transform, ...]) -> None:
    held = pa.Table.from_pylist([order(number) for number in range(24)], schema=plain(LAID_OUT))
    ours = published(engine, make(engine, LAID_OUT, fields), held)
    sparks = by_spark(engine, ours, fields)
    assert same(manifests(engine, ours)) == same(manifests(engine, sparks))
    assert len(manifests(engine, ours)) > 1


@pytest.mark.parametrize(
    "fields",
    [
        (Transform("real"), Transform("_kafka.offset", descending=True)),
        (Transform("real", descending=True), Transform("item.sku")),
        (Transform("side", "bucket", 3), Transform("blob", descending=True), Transform("large")),
        (Transform("at", "year", descending=True), Transform("code", "truncate", 5), Transform("price")),
    ],
    ids=lambda fields: "-".join(map(str, fields)),
)
def test_rows_lie_in_the_order_in_which_spark_sorts_them(
    engine: Engine, fields: tuple[Transform, ...]
) -> None:
    held = pa.Table.from_pylist([order(number) for number in range(60)], schema=plain(LAID_OUT))
    partition = (Transform("_kafka.partition"),)
    ours = published(engine, make(engine, LAID_OUT, partition, fields), held)
    sparks = by_spark(engine, ours, partition, fields)
    assert same(_in_files(engine, ours)) == same(_in_files(engine, sparks))
    assert [each["sort_order_id"] for each in manifests(engine, ours)] == [1] * 4


def _in_files(engine: Engine, table: Table) -> list[Row]:
    """The rows as they lie in each file."""
    found = engine.rows(table.name.table).selectExpr("_partition", "_pos", "*").toArrow().to_pylist()
    return sorted(found, key=lambda row: (row["_kafka"]["partition"], row["_pos"]))


def test_columns_without_metrics_show_nothing(engine: Engine) -> None:
    columns = struct(field("secret", "string"), field("open", "string"))
    rows = pa.table({"secret": ["Gedimino 1"], "open": ["Vilnius"]})
    table = make(
        engine,
        columns,
        properties={"write.metadata.metrics.column.secret": "none"},
    )
    published(engine, table, rows)
    (file,) = manifests(engine, table)
    assert [dict(file[name] or ()).keys() for name in ("lower_bounds", "value_counts")] == [{2}, {2}]


def keys(engine: Engine, table: Table) -> list[str]:
    """The objects of the table's data."""
    place = f"{table.name.table}/data/"
    return sorted(key for key, _ in objects(engine, lambda each: place in each["Key"]))


def test_files_can_be_discarded_and_what_is_left_of_tasks_swept(engine: Engine) -> None:
    table = make(engine, ALL)
    rows = pa.Table.from_pylist([ROW] * 10, schema=plain(ALL))
    layout = layout_of(table, Storage.of(engine.spark))
    discard(table, staged(engine, table, rows))
    round_id = uuid.uuid4().hex
    location = location_of(table, f"{round_id}-1-")
    kept = Files(layout, location_of(table, f"{round_id}-11-0"))
    kept.write(rows)
    kept.close()
    for attempt in (0, 1):
        lost = Files(layout, f"{location}{attempt}")
        lost.write(rows)
        lost.close()
    assert len(keys(engine, table)) == 3
    sweep(table, location)
    assert [f"{round_id}-11-" in each for each in keys(engine, table)] == [True]


def test_an_aborted_task_leaves_no_upload_behind(engine: Engine) -> None:
    """Nor is a file there before it is complete."""
    table = make(
        engine, struct(field("n", "long")), properties={"write.parquet.row-group-size-bytes": "8000"}
    )
    files = files_of(engine, table)
    files.write(pa.table({"n": range(2_000)}))
    assert keys(engine, table) == []
    files.abort()


def test_a_store_that_refuses_is_retryable_and_names_no_object(engine: Engine) -> None:
    table = make(engine, struct(field("n", "long")))
    layout = layout_of(table, Storage.of(engine.spark))
    files = Files(layout, "s3://no-such-bucket/secret-name")
    files.write(pa.table({"n": [1]}))
    with pytest.raises(Retryable, match="NO_SUCH_BUCKET") as error:
        files.close()
    assert "secret-name" not in str(error.value)


def test_large_files_go_up_in_parts(engine: Engine) -> None:
    """Of 5 MB and more each, whatever else the object store is asked for."""
    import numpy as np

    count = 3_000_000
    numbers = np.random.default_rng(1).integers(-(2**62), 2**62, count)
    table = published(engine, make(engine, struct(field("n", "long"))), pa.table({"n": numbers}))
    (row,) = engine.rows(table.name.table).selectExpr("count(*)", "sum(n % 1000)").collect()
    assert tuple(row) == (count, int(np.fmod(numbers, 1000).sum()))
