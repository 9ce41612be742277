"""JSON text to columns with Spark's parser. The parser is lenient, so the same pass refuses what it forgives.

The value is parsed inside an array with a random word W: `{"W":[VALUE,{"W":true}]}`.
The array has two items, and the last one is marked, only if VALUE is exactly one JSON value.
A value that closes the array early, or adds to it, cannot know W.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.names import quote
from calve.schema.columns import map_of
from calve.schema.writers import JsonWriter
from glue_jobs.columns.expressions import false
from tests.spark_decoder import json_leaves

CORRUPT = "calve:corrupt"
STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
LENIENT = STRICT | {"allowNonNumericNumbers": "true"}
"""Accepts the texts of non-finite numbers, but also these words without quotes."""
WORDS = ("NaN", "INF", "Infinity")
HIGH, LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
NO_HIGH = rf"(?<=\\){HIGH[2:]}"
"""After an escaped backslash."""
LONE_SURROGATE = rf"(?<!\\)(?:\\\\)*+(?:{HIGH}(?!{LOW})|(?<!{HIGH}){LOW}|{NO_HIGH}{LOW})"


ESCAPE = r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})"
SCALAR = (
    r"\A[ \t\r\n]*+(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
    rf"|\"(?:[^\"\\\x00-\x1f]++|{ESCAPE})*+\")[ \t\r\n]*+\z"
)
"""One JSON value that is neither an object nor an array."""
UNDECLARED = map_of("json")


@dataclass(frozen=True, slots=True)
class JsonValue:
    """Payloads (binary) of a writer's values; `word` is the round's random word."""

    payload: Column
    writer: JsonWriter
    word: str

    def parsed(self) -> Column:
        """The parsed payload. Evaluate it once, in its own projection."""
        lenient = json_leaves.strict_numbers(self.writer.shape) is not None
        found = self._parse(
            self._item(json_leaves.parse_type(self.writer.shape)), LENIENT if lenient else STRICT
        )
        return found if self.writer.rest is None else found.withField(quote(self._rest), self._parse_rest())

    def row(self, parsed: Column) -> Column:
        """Exactly the columns of the table: rows of all writers must have the same type."""
        given = {}
        if self.writer.rest is not None:
            rest = parsed[self._rest]
            names = F.map_keys(rest)
            once = (F.size(names) > 0) & (F.size(names) == F.size(F.array_distinct(names)))
            given[self.writer.rest] = F.when(once, F.to_json(F.to_variant_object(rest)))
        found = self._found(parsed)
        row = json_leaves.converted(self.writer.shape, self.writer.table, found, given)
        return found.dropFields(self.word) if row is found and self.writer.member is None else row

    def is_good(self, parsed: Column) -> Column:
        """True if the payload is one value of the shape and parsing changed or lost nothing; never null."""
        shape, items, text = self.writer.shape, parsed[self.word], self.payload.cast("string")
        found = self._found(parsed)
        escaped_surrogate = text.contains("\\ud") | text.contains("\\uD")
        conditions = [
            parsed[CORRUPT].isNull(),
            F.size(items) == 2,
            F.get(items, F.lit(1))[self.word],
            found.isNotNull(),
            F.is_valid_utf8(text),
            ~F.when(escaped_surrogate, text.rlike(LONE_SURROGATE)).otherwise(false()),
        ]
        if self.writer.scalar is not None:
            conditions.append(text.rlike(SCALAR) if self.writer.member is None else self._is_there(parsed))
        wrong = json_leaves.invalid(shape, found, text)
        if wrong is not None:
            conditions.append(~F.coalesce(wrong, false()))
        if isinstance(kind := json_leaves.strings(shape), T.StructType):
            conditions.append(self._parse(self._item(kind))[CORRUPT].isNull())
        unusual, kind = json_leaves.not_finite(shape, found), json_leaves.strict_numbers(shape)
        if unusual is not None and isinstance(kind, T.StructType):
            doubtful = reduce(Column.__or__, map(text.contains, WORDS), F.coalesce(unusual, false()))
            strict = self._parse(self._item(kind))
            conditions.append(~F.when(doubtful, strict[CORRUPT].isNotNull()).otherwise(false()))
            wrong = json_leaves.no_number(shape, self._found(strict))
            conditions.append(~F.coalesce(F.when(doubtful, wrong), false()))
        if self.writer.rest is not None:
            wrong = json_leaves.invalid(UNDECLARED, parsed[self._rest], text)
            conditions.append(parsed[self._rest].isNotNull())
            conditions += [] if wrong is None else [~F.coalesce(wrong, false())]
        return F.coalesce(reduce(Column.__and__, conditions), false())

    @property
    def _rest(self) -> str:
        return f"{self.word}:rest"

    def _item(self, kind: T.StructType) -> T.StructType:
        """The type for parsing the value and the mark, if the value is a struct of this type."""
        member, mark = self.writer.member, T.StructField(self.word, T.BooleanType())
        if member is None:
            return T.StructType([*kind.fields, mark])
        held = kind if self.writer.scalar is None else kind.fields[0].dataType
        return T.StructType([T.StructField(member, held), mark])

    def _found(self, parsed: Column) -> Column:
        """The parsed value: a struct of the shape's fields."""
        item = F.get(parsed[self.word], F.lit(0))
        if self.writer.member is None:
            return item
        held = item[self.writer.member]
        return held if self.writer.scalar is None else F.struct(held.alias(self.writer.scalar))

    def _is_there(self, parsed: Column) -> Column:
        """Whether the object has the member, even if null."""
        any_value = self._item(T.StructType([T.StructField("", T.VariantType())]))
        there = F.get(self._parse(any_value)[self.word], F.lit(0))[self.writer.member].isNotNull()
        return F.when(self._found(parsed)[self.writer.scalar].isNull(), there).otherwise(~false())

    def _parse_rest(self) -> Column:
        """The undeclared fields by name; duplicates are kept. Null if it is not JSON."""
        declared = [each["name"] for each in self.writer.shape["fields"]]
        fields, member = T.MapType(T.StringType(), T.VariantType()), self.writer.member
        found = self._parse(fields if member is None else T.StructType([T.StructField(member, fields)]))
        item = F.get(found[self.word], F.lit(0))
        first = item if member is None else item[member]
        return F.when(found[CORRUPT].isNull(), F.map_filter(first, lambda name, _: ~name.isin(*declared)))

    def _parse(self, item: T.DataType, options: dict[str, str] = STRICT) -> Column:
        schema = T.StructType(
            [T.StructField(self.word, T.ArrayType(item)), T.StructField(CORRUPT, T.StringType())]
        )
        before, after = f'{{"{self.word}":[', f',{{"{self.word}":true}}]}}'
        if self.writer.scalar is not None and self.writer.member is None:
            before, after = f'{before}{{"{self.writer.scalar}":', f"}}{after}"
        framed = F.concat(F.lit(bytearray(before.encode())), self.payload, F.lit(bytearray(after.encode())))
        return F.from_json(framed.cast("string"), schema, options)
