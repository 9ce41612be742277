"""What is personal leaves the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from calve.masking import Key
from calve.steps import Rule
from glue_jobs.columnar.steps.masked import Tokens, masked
from glue_jobs.columnar.steps.rows import Rows
from glue_jobs.columnar.types import Items

Received = Literal["hash", "null", "keep"]


@dataclass(frozen=True, slots=True)
class Inside:
    """What is done to the items of a list, or to the values of a map."""

    each: Change


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a struct that are left, by their places, with what is done to each."""

    left: tuple[tuple[int, Change], ...]


Change = Rule | Inside | Fields | None
"""What is done to a value; None: nothing."""


@dataclass(frozen=True, slots=True)
class Masking:
    """columns: the columns that are left, with what is done to each. key, headers: as in `calve.steps.Mask`."""

    columns: tuple[tuple[str, Change], ...]
    key: Received
    headers: Received

    def run(self, rows: Rows, keys: Sequence[Key]) -> Rows:
        tokens = Tokens.of(keys, rows.kafka)
        columns = {name: _masked(rows.columns[name], how, tokens) for name, how in self.columns}
        return Rows(columns, self._record(rows.kafka, tokens), rows.record)

    def _record(self, kafka: pa.StructArray, tokens: Tokens) -> pa.StructArray:
        """`_kafka` with its key and the values of its headers masked; its type stays."""
        arrays = {each.name: kafka.field(each.name) for each in kafka.type}
        arrays["key"] = _received(arrays["key"], self.key, tokens)
        if self.headers != "keep":
            items = Items.of(arrays["headers"])
            values = _received(items.values.field("value"), self.headers, tokens.of_items(items.sizes))
            header = pa.StructArray.from_arrays(
                [items.values.field("key"), values], fields=list(items.values.type)
            )
            arrays["headers"] = items.with_values(header)
        return pa.StructArray.from_arrays(list(arrays.values()), fields=list(kafka.type))


def _masked(array: pa.Array, how: Change, tokens: Tokens) -> pa.Array:
    match how:
        case None:
            return array
        case Rule("null"):
            return pa.nulls(len(array), array.type)
        case Rule():
            return masked(array, how, tokens)
        case Inside():
            items = Items.of(array)
            return items.with_values(_masked(items.values, how.each, tokens.of_items(items.sizes)))
    made = [_masked(array.field(place), each, tokens) for place, each in how.left]
    fields = [
        array.type.field(place).with_type(one.type) for (place, _), one in zip(how.left, made, strict=True)
    ]
    return pa.StructArray.from_arrays(made, fields=fields, mask=pc.is_null(array))


def _received(array: pa.Array, how: Received, tokens: Tokens) -> pa.Array:
    match how:
        case "hash":
            return tokens.made_of(array).cast(pa.binary())
        case "null":
            return pa.nulls(len(array), array.type)
    return array
