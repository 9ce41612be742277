"""What a table's JSON and properties say of its files, and what of it cannot be done."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from calve.config.engine_choice import Unsupported
from calve.schema.columns import Transform, field, map_of, struct, with_ids
from glue_jobs.engines.columnar.layouts import Layout, layout
from glue_jobs.iceberg.storage import Storage

COLUMNS = with_ids(
    struct(
        field("n", "double"),
        field("item", struct(field("sku", "string"))),
        field("many", map_of("string")),
    )
)
ITEM_SKU = 4
HERE = Storage("us-east-1")


def made(properties: dict[str, str] | None = None, storage: Storage = HERE, **json: Any) -> Layout:
    spec = {"spec-id": 3, "fields": json.get("spec", [])}
    order = {"order-id": 2, "fields": json.get("order", [])}
    return layout(json.get("columns", COLUMNS), spec, order, properties or {}, storage)


def partition(transform: str, source: int = ITEM_SKU) -> dict[str, Any]:
    return {"name": "p", "transform": transform, "source-id": source, "field-id": 1000}


def test_a_layout_without_properties_is_icebergs_default() -> None:
    found = made()
    assert (found.codec, found.level, found.file_bytes, found.batch_bytes) == ("zstd", None, 2**29, 2**27)
    assert (found.page_bytes, found.dictionary_bytes) == (2**20, 2**21)
    assert (found.delta, found.unmeasured, found.partition, found.order) == (False, frozenset(), (), ())
    assert pickle.loads(pickle.dumps(found)) == found


def test_properties_are_obeyed() -> None:
    found = made(
        {
            "write.target-file-size-bytes": "1000",
            "write.parquet.row-group-size-bytes": "2000",
            "write.parquet.page-size-bytes": "3",
            "write.parquet.dict-size-bytes": "5",
            "write.parquet.page-version": "v2",
            "write.parquet.compression-codec": "GZIP",
            "write.parquet.compression-level": "6",
        }
    )
    assert (found.file_bytes, found.batch_bytes, found.delta) == (1000, 1000, True)
    assert (found.page_bytes, found.dictionary_bytes) == (3, 5)
    assert (found.codec, found.level) == ("gzip", 6)


@pytest.mark.parametrize(("codec", "found"), [("uncompressed", "none"), ("snappy", "snappy")])
def test_a_level_is_ignored_where_the_codec_has_none(codec: str, found: str) -> None:
    layout = made({"write.parquet.compression-codec": codec, "write.parquet.compression-level": "6"})
    assert (layout.codec, layout.level) == (found, None)


@pytest.mark.parametrize(
    ("properties", "unmeasured"),
    [
        ({"write.metadata.metrics.column.item.sku": "none"}, {ITEM_SKU}),
        ({"write.parquet.stats-enabled.column.n": "false"}, {1}),
        ({"write.metadata.metrics.column.many.value": "NONE"}, {6}),
        ({"write.metadata.metrics.default": "none", "write.metadata.metrics.column.n": "full"}, {4, 5, 6}),
        ({"write.metadata.metrics.default": "counts"}, set()),
    ],
)
def test_columns_without_metrics_are_unmeasured(properties: dict[str, str], unmeasured: set[int]) -> None:
    assert made(properties).unmeasured == unmeasured


def test_transforms_name_their_column() -> None:
    fields = [partition("bucket[16]"), partition("void"), partition("identity")]
    order = [{"transform": "truncate[2]", "source-id": 4, "direction": "desc", "null-order": "nulls-last"}]
    found = made(spec=fields, order=order)
    assert (found.spec_id, found.order_id) == (3, 2)
    assert found.partition == (
        (1000, Transform("item.sku", "bucket", 16)),
        (1000, None),
        (1000, Transform("item.sku")),
    )
    sort = Transform("item.sku", "truncate", 2, descending=True)
    assert found.order == ((sort, False),)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"properties": {"write.format.default": "ORC"}}, "its files are orc"),
        ({"properties": {"write.parquet.compression-codec": "lz4"}}, "compressed by lz4"),
        ({"properties": {"write.parquet.bloom-filter-enabled.column.n": "true"}}, "Bloom filters"),
        ({"properties": {"encryption.key-id": "k"}}, "encrypted by Iceberg"),
        ({"spec": [partition("identity", 1)]}, "partitioned by n, which is of the type double"),
        ({"spec": [partition("other[1]")]}, r"laid out by other\[1\] of item.sku"),
        ({"columns": with_ids(struct(field("v", "variant")))}, "column v is of the type variant"),
        ({"storage": Storage("us-east-1", names_key=True)}, "name lake.kms_key"),
    ],
)
def test_what_cannot_be_done_is_told(wanted: dict[str, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        made(**wanted)
