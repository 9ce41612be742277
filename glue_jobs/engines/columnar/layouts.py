"""How tasks write a table's data files: the layout, and the Parquet columns of its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.config.engine_choice import Unsupported
from calve.schema.columns import Json, Transform
from glue_jobs.columns.arrow_types import FIELD_ID, leaf_type
from glue_jobs.iceberg.storage import Storage

METRICS = "write.metadata.metrics."
PARQUET = "write.parquet."
BLOOM = f"{PARQUET}bloom-filter-enabled."
TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
FLOATS = ("float", "double")
CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "brotli": "brotli", "uncompressed": "none"}
WITHOUT_LEVEL = ("snappy", "none")
"""Codecs with which Arrow refuses a level. Iceberg ignores it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """columns: Iceberg's struct type with field ids. unmeasured: ids of leaves whose values no statistic may show.

    partition: id and transform of each field; None: it is no longer used. order: transforms, and whether nulls are first.
    batch_bytes: Arrow bytes that are gathered before they are sorted and written as a row group.
    delta: whether top-level columns may have delta encodings. Iceberg's vectorised readers support these only since 1.11.
    """

    columns: Json
    spec_id: int
    partition: tuple[tuple[int, Transform | None], ...]
    order_id: int
    order: tuple[tuple[Transform, bool], ...]
    codec: str
    level: int | None
    batch_bytes: int
    file_bytes: int
    page_bytes: int
    dictionary_bytes: int
    delta: bool
    unmeasured: frozenset[int]
    storage: Storage


def layout(columns: Json, spec: Json, order: Json, properties: Mapping[str, str], storage: Storage) -> Layout:
    """columns, spec, order: in Iceberg's JSON. Raises Unsupported: the table needs a feature that this engine lacks."""
    if storage.names_key:
        raise Unsupported("the lake's bucket existed before, and each upload must name lake.kms_key")
    _require_supported(columns, properties)
    sources = {each.id: each for each in leaves(columns)}
    file_bytes = int(properties.get("write.target-file-size-bytes", 512 << 20))
    row_group_bytes = int(properties.get(f"{PARQUET}row-group-size-bytes", 128 << 20))
    codec, level = CODECS[_codec(properties)], properties.get(f"{PARQUET}compression-level")
    return Layout(
        columns=columns,
        spec_id=spec["spec-id"],
        partition=tuple(_partition_field(each, sources[each["source-id"]]) for each in spec["fields"]),
        order_id=order["order-id"],
        order=tuple(_sort_field(each, sources[each["source-id"]]) for each in order["fields"]),
        codec=codec,
        level=int(level) if level and codec not in WITHOUT_LEVEL else None,
        batch_bytes=min(row_group_bytes, file_bytes),
        file_bytes=file_bytes,
        page_bytes=int(properties.get(f"{PARQUET}page-size-bytes", 1 << 20)),
        dictionary_bytes=int(properties.get(f"{PARQUET}dict-size-bytes", 2 << 20)),
        delta=properties.get(f"{PARQUET}page-version") == "v2",
        unmeasured=frozenset(each.id for each in sources.values() if not _measured(each.name, properties)),
        storage=storage,
    )


def _require_supported(columns: Json, properties: Mapping[str, str]) -> None:
    file_format = properties.get("write.format.default", "parquet").lower()
    if file_format != "parquet":
        raise Unsupported(f"its files are {file_format}")
    if _codec(properties) not in CODECS:
        raise Unsupported(f"its files are compressed by {_codec(properties)}")
    blooms = (value for name, value in properties.items() if name.startswith(BLOOM))
    if "true" in blooms:
        raise Unsupported("its files have Bloom filters")
    if "encryption.key-id" in properties:
        raise Unsupported("its files are encrypted by Iceberg")
    for each in leaves(columns):
        try:
            leaf_type(each.kind)
        except KeyError:
            raise Unsupported(f"column {each.name} is of the type {each.kind}") from None


def _codec(properties: Mapping[str, str]) -> str:
    return properties.get(f"{PARQUET}compression-codec", "zstd").lower()


def _measured(name: str, properties: Mapping[str, str]) -> bool:
    """Whether Iceberg's metrics configuration allows values of a column in statistics."""
    mode = properties.get(f"{METRICS}column.{name}", properties.get(f"{METRICS}default", "truncate(16)"))
    return mode.lower() != "none" and properties.get(f"{PARQUET}stats-enabled.column.{name}") != "false"


def _partition_field(field: dict[str, Any], source: Leaf) -> tuple[int, Transform | None]:
    transform = _transform(field, source)
    if transform and transform.name == "identity" and source.kind in FLOATS:
        raise Unsupported(f"it is partitioned by {source.name}, which is of the type {source.kind}")
    return field["field-id"], transform


def _sort_field(field: dict[str, Any], source: Leaf) -> tuple[Transform, bool]:
    transform = _transform(field, source)
    if transform is None:
        raise Unsupported("its sort order has a field without a meaning")
    return transform, field["null-order"] == "nulls-first"


def _transform(field: dict[str, Any], source: Leaf) -> Transform | None:
    name, _, argument = field["transform"].removesuffix("]").partition("[")
    if name == "void":
        return None
    if name not in TRANSFORMS:
        raise Unsupported(f"it is laid out by {field['transform']} of {source.name}")
    descending = field.get("direction") == "desc"
    return Transform(source.name, name, int(argument) if argument else None, descending)


class Part(StrEnum):
    """The path elements of lists and maps in Parquet."""

    ELEMENT = "list.element"
    KEY = "key_value.key"
    VALUE = "key_value.value"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column in Parquet; way: its parent fields, and the parts of lists and maps."""

    id: int
    way: tuple[str, ...]
    kind: str

    @property
    def name(self) -> str:
        """The name in Iceberg."""
        return ".".join(each.rpartition(".")[2] if isinstance(each, Part) else each for each in self.way)

    @property
    def path(self) -> str:
        """The path in Parquet."""
        return ".".join(self.way)

    @property
    def repeated(self) -> bool:
        """True if a row may have several values."""
        return any(isinstance(each, Part) for each in self.way)

    def values(self, rows: pa.Table) -> list[pa.Array]:
        """The values, chunk by chunk; null where a parent is null."""
        return [_inside(each, self.way[1:]) for each in rows.column(self.way[0]).chunks]


def _inside(array: pa.Array, way: tuple[str, ...]) -> pa.Array:
    for step in way:
        match step:
            case Part.ELEMENT:
                array = array.flatten()
            case Part.KEY:
                array = array.keys
            case Part.VALUE:
                array = array.items
            case _:
                array = pc.struct_field(array, step)
    return array


def leaves(columns: Json) -> list[Leaf]:
    """The leaves of a struct type, in Parquet's order."""
    return [leaf for each in columns["fields"] for leaf in _below((each["name"],), each["id"], each["type"])]


def _below(way: tuple[str, ...], field_id: int, kind: Json) -> Iterator[Leaf]:
    if isinstance(kind, str):
        yield Leaf(field_id, way, kind)
        return
    match kind["type"]:
        case "struct":
            for each in kind["fields"]:
                yield from _below((*way, each["name"]), each["id"], each["type"])
        case "list":
            yield from _below((*way, Part.ELEMENT), kind["element-id"], kind["element"])
        case "map":
            yield from _below((*way, Part.KEY), kind["key-id"], kind["key"])
            yield from _below((*way, Part.VALUE), kind["value-id"], kind["value"])


def schema(columns: Json) -> pa.Schema:
    """The Arrow schema of a struct type, with Iceberg's field ids."""
    return pa.schema(_fields(columns))


def _fields(struct: Json) -> list[pa.Field]:
    return [
        _field(each["name"], each["type"], each["id"], required=each["required"]) for each in struct["fields"]
    ]


def _field(name: str, kind: Json, field_id: int, *, required: bool) -> pa.Field:
    return pa.field(name, _type(kind), nullable=not required, metadata={FIELD_ID: str(field_id).encode()})


def _type(kind: Json) -> pa.DataType:
    if isinstance(kind, str):
        return leaf_type(kind)
    match kind["type"]:
        case "struct":
            return pa.struct(_fields(kind))
        case "list":
            required = kind["element-required"]
            return pa.list_(_field("element", kind["element"], kind["element-id"], required=required))
    return pa.map_(
        _field("key", kind["key"], kind["key-id"], required=True),
        _field("value", kind["value"], kind["value-id"], required=kind["value-required"]),
    )
