"""Data files: their columns, ids, encodings, statistics and sizes."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calve.errors import Fatal
from calve.schema.columns import KAFKA, Transform, field, list_of, struct
from glue_jobs.engines.columnar.layouts import leaves
from glue_jobs.engines.columnar.parquet import MAGIC, Files
from glue_jobs.index.decision import KeyRule
from tests.arrow_rows import ALL, EMPTY, ROW, plain
from tests.unit.glue_jobs.columnar.layouts import layout, local, read, written

KEYED = struct(field("id", "long"), KAFKA)


def ids(kind: Any) -> set[int]:
    """All ids of a Parquet schema."""
    found = set()
    for each in kind:
        found.add(int(each.metadata[b"PARQUET:field_id"]))
        if pa.types.is_struct(each.type):
            found |= ids(each.type)
        elif pa.types.is_map(each.type):
            found |= ids([each.type.key_field, each.type.item_field])
        elif pa.types.is_list(each.type):
            found |= ids([each.type.value_field])
    return found


@pytest.fixture
def rows() -> pa.Table:
    return pa.Table.from_pylist([ROW, EMPTY, ROW], schema=plain(ALL))


def test_every_type_comes_back_with_its_value(rows: pa.Table, tmp_path: Path) -> None:
    assert read(written(tmp_path, layout(ALL), rows)).to_pylist() == [ROW, EMPTY, ROW]


def test_columns_may_come_in_any_order_and_as_batches(rows: pa.Table, tmp_path: Path) -> None:
    turned = rows.select(rows.column_names[::-1]).to_batches(max_chunksize=1)
    assert read(written(tmp_path, layout(ALL), *turned)).to_pylist() == [ROW, EMPTY, ROW]


def test_fields_of_every_level_have_icebergs_ids(rows: pa.Table, tmp_path: Path) -> None:
    (file,) = written(tmp_path, layout(ALL), rows)
    made = pq.read_schema(local(file))
    numbered = layout(ALL)
    assert {each.id for each in leaves(numbered.columns)} < ids(made)
    assert len(ids(made)) == 17 + 2 + 3 + 8 + 3
    assert ids(made) == set(range(1, len(ids(made)) + 1))


def test_types_are_stored_as_iceberg_stores_them(rows: pa.Table, tmp_path: Path) -> None:
    (file,) = written(tmp_path, layout(ALL), rows)
    stored = pq.ParquetFile(local(file)).schema
    held = {c.path: (c.physical_type, str(c.logical_type)) for c in map(stored.column, range(len(stored)))}
    assert (held["small"][0], held["middle"][0]) == ("INT32", "INT64")
    assert held["large"][0] == "FIXED_LEN_BYTE_ARRAY"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in held["timestamptz"][1]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in held["timestamp"][1]
    assert {"listed.list.element.list.element", "mapped.key_value.key", "mapped.key_value.value.inner"} < set(
        held
    )
    assert b"ARROW:schema" not in (pq.read_metadata(local(file)).metadata or {})


def test_the_footer_is_the_files_metadata(rows: pa.Table, tmp_path: Path) -> None:
    (file,) = written(tmp_path, layout(ALL), rows)
    alone = MAGIC + file.footer + len(file.footer).to_bytes(4, "little") + MAGIC
    assert pq.read_metadata(BytesIO(alone)).equals(pq.read_metadata(local(file)))
    assert (file.rows, file.size) == (3, Path(local(file)).stat().st_size)


def encodings(file: Any) -> dict[str, tuple[str, ...]]:
    group = pq.read_metadata(local(file)).row_group(0)
    return {c.path_in_schema: c.encodings for c in map(group.column, range(group.num_columns))}


def test_encodings_follow_the_values(tmp_path: Path) -> None:
    count = 10_000
    columns = struct(
        field("side", "string"),
        field("id", "string"),
        field("seen", "long"),
        field("s", struct(field("offset", "long"), field("id", "string"))),
    )
    names = [f"trade-{n:08d}" for n in range(count)]
    inner = pa.StructArray.from_arrays([pa.array(range(count)), pa.array(names)], names=["offset", "id"])
    rows = pa.table({"side": ["BUY", "SELL"] * (count // 2), "id": names, "seen": range(count), "s": inner})
    (file,) = written(tmp_path, layout(columns), rows)
    found = encodings(file)
    assert "RLE_DICTIONARY" in found["side"]
    assert "DELTA_BINARY_PACKED" in found["s.offset"]
    assert "DELTA_BYTE_ARRAY" in found["s.id"]
    for name in ("id", "seen"):
        assert {"RLE", "PLAIN"} == set(found[name])
    (file,) = written(tmp_path, layout(columns, delta=True), rows)
    found = encodings(file)
    assert "DELTA_BINARY_PACKED" in found["seen"]
    assert "DELTA_BYTE_ARRAY" in found["id"]
    assert read([file]).equals(rows)


def test_rows_that_a_later_record_deletes_are_in_no_file(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(
        [{"id": 7, "_kafka": {"partition": 0, "offset": 1, "timestamp": 2}}], plain(KEYED)
    )
    rule = KeyRule(("id",), newest=True)
    later = pa.Table.from_pylist(
        [{"id": 7, "_kafka": {"partition": 0, "offset": 2, "timestamp": 2}}], plain(KEYED)
    )
    files = Files(layout(KEYED), f"file://{tmp_path}/round-1-0", rule)
    files.delete(later)
    files.write(rows)
    assert files.close() == []
    assert files.deletions.offset.tolist() == [2]


def test_unmeasured_columns_show_no_value_in_a_footer(tmp_path: Path) -> None:
    fields = struct(field("secret", "string"), field("open", "string"), field("amount", "double"))
    rows = pa.table({"secret": ["Gedimino 1"], "open": ["Vilnius"], "amount": [1.5]})
    (file,) = written(tmp_path, layout(fields, unmeasured=frozenset({1, 3})), rows)
    group = pq.read_metadata(local(file)).row_group(0)
    columns = [group.column(n) for n in range(3)]
    assert [each.is_stats_set for each in columns] == [False, True, False]
    assert [each.has_column_index for each in columns] == [False, True, False]
    assert b"Gedimino" not in file.footer
    assert b"Vilnius" in file.footer
    assert file.nans == {}


def test_nan_is_counted_where_a_row_has_one_value(tmp_path: Path) -> None:
    columns = struct(
        field("a", "double"), field("s", struct(field("b", "float"))), field("many", list_of("double"))
    )
    types = plain(columns)
    held = [
        {"a": math.nan, "s": {"b": math.nan}, "many": [math.nan]},
        {"a": None, "s": None, "many": None},
        {"a": math.nan, "s": {"b": 1.0}, "many": []},
    ]
    rows = pa.Table.from_pylist(held, schema=types)
    (file,) = written(tmp_path, layout(columns), rows)
    assert file.nans == {1: 2, 4: 1}


def test_files_end_at_the_target_size_and_say_where_row_groups_begin(tmp_path: Path) -> None:
    rows = pa.table({"n": range(10_000)})
    made = layout(struct(field("n", "long")), batch_bytes=8_000, file_bytes=40_000, codec="none", level=None)
    files = written(tmp_path, made, *rows.to_batches(max_chunksize=500))
    assert read(files).equals(rows)
    assert len(files) > 1
    assert len({each.path for each in files}) == len(files)
    for each in files:
        assert each.size < 60_000
        assert [each.splits[0], len(each.splits)] == [4, pq.read_metadata(local(each)).num_row_groups]
        assert list(each.splits) == sorted(set(each.splits))


def test_no_rows_are_no_files(tmp_path: Path) -> None:
    made = layout(struct(field("n", "long")))
    assert written(tmp_path, made, pa.table({"n": pa.array([], pa.int64())})) == []
    assert list(tmp_path.iterdir()) == []


def test_a_column_of_another_type_is_named_and_no_value_is_told(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="column n is string") as error:
        written(tmp_path, layout(struct(field("n", "long"))), pa.table({"n": ["hidden"]}))
    assert "hidden" not in str(error.value)


def test_a_column_that_the_rows_lack_is_null(tmp_path: Path) -> None:
    columns = struct(field("n", "long"), field("later", list_of("string")))
    assert read(written(tmp_path, layout(columns), pa.table({"n": [1]}))).to_pylist() == [
        {"n": 1, "later": None}
    ]


def test_a_column_that_the_table_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="no column other"):
        written(tmp_path, layout(struct(field("n", "long"))), pa.table({"n": [1], "other": [2]}))


def test_each_partition_is_a_file_in_its_order(tmp_path: Path) -> None:
    made = layout(
        struct(field("side", "string"), field("n", "long")),
        partition=((1000, Transform("side")),),
        order_id=1,
        order=((Transform("n", descending=True), False),),
        batch_bytes=10**6,
    )
    rows = pa.table({"side": ["BUY", None, "SELL", "BUY", None], "n": [1, None, 3, 5, 2]})
    files = written(tmp_path, made, rows)
    held = {each.partition: read([each])["n"].to_pylist() for each in files}
    assert held == {'{"1000": "BUY"}': [5, 1], '{"1000": null}': [2, None], '{"1000": "SELL"}': [3]}
