"""A table's columns as its data files have them: Arrow types with Iceberg's field ids, and the leaves that Parquet stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from calve.columns import Json
from glue_jobs.arrow_types import leaf_type

FIELD_ID = b"PARQUET:field_id"


class Part(StrEnum):
    """What lies in a list or a map, as Parquet calls it."""

    ELEMENT = "list.element"
    KEY = "key_value.key"
    VALUE = "key_value.value"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column as Parquet stores it; way: the fields that lead to it, and the parts of lists and maps."""

    id: int
    way: tuple[str, ...]
    kind: str

    @property
    def name(self) -> str:
        """As Iceberg calls it."""
        return ".".join(each.rpartition(".")[2] if isinstance(each, Part) else each for each in self.way)

    @property
    def path(self) -> str:
        """As Parquet calls it."""
        return ".".join(self.way)

    @property
    def repeated(self) -> bool:
        """True where a row has any number of its values."""
        return any(isinstance(each, Part) for each in self.way)

    def values(self, rows: pa.Table) -> list[pa.Array]:
        """Its values, chunk by chunk; null where what it lies in is null."""
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
    """The leaves of a struct type, in the order in which Parquet has them."""
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
    """Fields with ids for all columns of a table; a leaf that is a dictionary in `held` stays one, unless it is a real number."""
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
