"""Where and how tasks write a table's data files: the object store, the layout, and the Parquet columns of its schema."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyspark.sql import SparkSession

from calve.config.engine_choice import Unsupported
from calve.config.spark_conf import CATALOG, NAMES_KEY
from calve.errors import Retryable
from calve.schema.columns import Json, Transform
from glue_jobs.columns.arrow_types import leaf_type

ATTEMPTS = 4
"""Attempts per request. After them the round is retried with growing delays."""
SMALL_AT_ONCE = {"allow_delayed_open": True} if int(pa.__version__.partition(".")[0]) >= 21 else {}
"""A small file takes one request. Older Arrow, which Glue may have, needs three."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""The endpoint variables of all AWS clients. Arrow reads them too, but not how to address a bucket there."""
AWS_ERROR = re.compile(r"AWS Error (\w+)")


@dataclass(frozen=True, slots=True)
class Storage:
    """Uses the credentials of the process: the role on Glue, the environment on a laptop.

    names_key: uploads must name their encryption key. Arrow cannot do that.
    """

    region: str
    endpoint: str | None = None
    names_key: bool = False

    @classmethod
    def of(cls, spark: SparkSession) -> Storage:
        """From the configuration of the session's catalog."""
        get, catalog = spark.conf.get, f"spark.sql.catalog.{CATALOG}"
        endpoint = get(f"{catalog}.s3.endpoint", None)
        return cls(str(get(f"{catalog}.client.region")), endpoint, get(NAMES_KEY, None) == "true")

    def create(self, location: str) -> pa.NativeFile:
        """Create an object and upload it in parts. It does not exist before it is closed.

        Raises:
            Retryable: the object store fails.
        """
        system, path = self._system(location)
        with failures():
            return system.open_output_stream(path)

    def _system(self, location: str) -> tuple[fs.FileSystem, str]:
        scheme, _, path = location.partition("://")
        if scheme == "file":
            return fs.LocalFileSystem(), path
        return _s3(self), path


@cache
def _s3(storage: Storage) -> fs.S3FileSystem:
    """One per process: it holds the connections."""
    named = (os.environ.get(each) for each in ENDPOINTS)
    endpoint = urlsplit(storage.endpoint or next(filter(None, named), "https:"))
    return fs.S3FileSystem(
        region=storage.region,
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc or None,
        connect_timeout=5,
        request_timeout=60,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **SMALL_AT_ONCE,
    )


@contextmanager
def failures() -> Iterator[None]:
    """Errors of the object store, without names of objects."""
    try:
        yield
    except OSError as error:
        found = AWS_ERROR.search(str(error))
        raise Retryable(
            f"the object store refused data files: {found[1] if found else type(error).__name__}"
        ) from None


METRICS = "write.metadata.metrics."
PARQUET = "write.parquet."
CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "brotli": "brotli", "uncompressed": "none"}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """transform: None if the field is no longer used. kind: the type of its column."""

    id: int
    transform: Transform | None
    kind: str


@dataclass(frozen=True, slots=True)
class SortField:
    """A field of the sort order; kind: the type of its column."""

    transform: Transform
    kind: str
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """columns: Iceberg's struct type with field ids. unmeasured: ids of leaves whose values no statistic may show.

    batch_bytes: Arrow bytes that are gathered before they are sorted and written as a row group.
    delta: whether top-level columns may have delta encodings. Iceberg's vectorised readers support these only since 1.11.
    """

    columns: Json
    spec_id: int
    partition: tuple[PartitionField, ...]
    order_id: int
    order: tuple[SortField, ...]
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
    """columns, spec, order: in Iceberg's JSON.

    Raises:
        Unsupported: the table needs a feature that this engine lacks.
    """
    if storage.names_key:
        raise Unsupported("the lake's bucket existed before, and each upload must name lake.kms_key")
    _require_supported(columns, properties)
    sources = {each.id: (each.name, each.kind) for each in leaves(columns)}
    file_bytes = int(properties.get("write.target-file-size-bytes", 512 << 20))
    row_group_bytes = int(properties.get(f"{PARQUET}row-group-size-bytes", 128 << 20))
    level = properties.get(f"{PARQUET}compression-level")
    return Layout(
        columns=columns,
        spec_id=spec["spec-id"],
        partition=tuple(_partition_field(each, *sources[each["source-id"]]) for each in spec["fields"]),
        order_id=order["order-id"],
        order=tuple(_sort_field(each, *sources[each["source-id"]]) for each in order["fields"]),
        codec=_codec(properties),
        level=int(level) if level else None,
        batch_bytes=min(row_group_bytes, file_bytes),
        file_bytes=file_bytes,
        page_bytes=int(properties.get(f"{PARQUET}page-size-bytes", 1 << 20)),
        dictionary_bytes=int(properties.get(f"{PARQUET}dict-size-bytes", 2 << 20)),
        delta=properties.get(f"{PARQUET}page-version") == "v2",
        unmeasured=frozenset(each.id for each in leaves(columns) if not _measured(each.name, properties)),
        storage=storage,
    )


def _require_supported(columns: Json, properties: Mapping[str, str]) -> None:
    file_format = properties.get("write.format.default", "parquet").lower()
    if file_format != "parquet":
        raise Unsupported(f"its files are {file_format}")
    if any(
        name.startswith(f"{PARQUET}bloom-filter-enabled.") and value == "true"
        for name, value in properties.items()
    ):
        raise Unsupported("its files have Bloom filters")
    if "encryption.key-id" in properties:
        raise Unsupported("its files are encrypted by Iceberg")
    for each in leaves(columns):
        try:
            leaf_type(each.kind)
        except KeyError:
            raise Unsupported(f"column {each.name} is of the type {each.kind}") from None


def _codec(properties: Mapping[str, str]) -> str:
    name = properties.get(f"{PARQUET}compression-codec", "zstd").lower()
    if name not in CODECS:
        raise Unsupported(f"its files are compressed by {name}")
    return CODECS[name]


def _measured(name: str, properties: Mapping[str, str]) -> bool:
    """Whether Iceberg's metrics configuration allows values of a column in statistics."""
    mode = properties.get(f"{METRICS}column.{name}", properties.get(f"{METRICS}default", "truncate(16)"))
    return mode.lower() != "none" and properties.get(f"{PARQUET}stats-enabled.column.{name}") != "false"


def _partition_field(field: dict[str, Any], column: str, kind: str) -> PartitionField:
    transform = _transform(field["transform"], column)
    if transform and transform.name == "identity" and kind in ("float", "double"):
        raise Unsupported(f"it is partitioned by {column}, which is of the type {kind}")
    return PartitionField(field["field-id"], transform, kind)


def _sort_field(field: dict[str, Any], column: str, kind: str) -> SortField:
    transform = _transform(field["transform"], column, descending=field["direction"] == "desc")
    if transform is None:
        raise Unsupported("its sort order has a field without a meaning")
    return SortField(transform, kind, field["null-order"] == "nulls-first")


def _transform(text: str, column: str, *, descending: bool = False) -> Transform | None:
    name, _, argument = text.removesuffix("]").partition("[")
    if name == "void":
        return None
    if name not in ("identity", "year", "month", "day", "hour", "bucket", "truncate"):
        raise Unsupported(f"it is laid out by {text} of {column}")
    return Transform(column, name, int(argument) if argument else None, descending)  # type: ignore[arg-type]


FIELD_ID = b"PARQUET:field_id"


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


def schema(columns: Json, held: pa.Schema) -> pa.Schema:
    """A schema with field ids for all columns. A dictionary leaf in `held` stays a dictionary, unless it is a float."""
    return pa.schema(_fields(columns["fields"], {each.name: each.type for each in held}))


def _fields(fields: list[Json], held: dict[str, pa.DataType]) -> list[pa.Field]:
    return [
        _field(each["name"], each["type"], each["id"], held.get(each["name"]), required=each["required"])
        for each in fields
    ]


def _field(name: str, kind: Json, field_id: int, held: pa.DataType | None, *, required: bool) -> pa.Field:
    metadata = {FIELD_ID: str(field_id).encode()}
    return pa.field(name, _type(kind, held), nullable=not required, metadata=metadata)


def _type(kind: Json, held: pa.DataType | None) -> pa.DataType:
    held = held or pa.null()
    if isinstance(kind, str):
        value = leaf_type(kind)
        kept = pa.types.is_dictionary(held) and not pa.types.is_floating(value)
        return pa.dictionary(held.index_type, value) if kept else value
    match kind["type"]:
        case "struct":
            inner = {each.name: each.type for each in held} if pa.types.is_struct(held) else {}
            return pa.struct(_fields(kind["fields"], inner))
        case "list":
            item = held.value_type if pa.types.is_list(held) else None
            required = kind["element-required"]
            return pa.list_(_field("element", kind["element"], kind["element-id"], item, required=required))
    key, value = (held.key_type, held.item_type) if pa.types.is_map(held) else (None, None)
    return pa.map_(
        _field("key", kind["key"], kind["key-id"], key, required=True),
        _field("value", kind["value"], kind["value-id"], value, required=kind["value-required"]),
    )
