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
from calve.schema.columns import Json, map_of
from glue_jobs.columns.expressions import false
from glue_jobs.decode.json_leaves import (
    converted,
    invalid,
    no_number,
    not_finite,
    parse_type,
    strict_numbers,
    strings,
    suspicious,
)

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
LONE_SURROGATE = rf"(?<!\\)(?:\\\\)*+(?:{HIGH}(?!{LOW})|(?<!{HIGH}){LOW})"


ESCAPE = r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})"
SCALAR = (
    r"\A[ \t\r\n]*+(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
    rf"|\"(?:[^\"\\\x00-\x1f]++|{ESCAPE})*+\")[ \t\r\n]*+\z"
)
"""One JSON value that is neither an object nor an array."""
UNDECLARED = map_of("json")


@dataclass(frozen=True, slots=True)
class JsonValue:
    """Payloads (binary) of a shape of `calve.schema.json_schema`; `word` is the round's random word.

    scalar: the payload is the value of the shape's only field, without an object around it.
    rest: the column for undeclared fields. member: the payload is an object, and this member is the value.
    """

    payload: Column
    shape: Json
    word: str
    scalar: str | None = None
    rest: str | None = None
    member: str | None = None

    def parsed(self) -> Column:
        """The parsed payload. Evaluate it once, in its own projection."""
        lenient = strict_numbers(self.shape) is not None
        found = self._parse(self._item(parse_type(self.shape)), LENIENT if lenient else STRICT)
        if self.rest is None:
            return found
        return found.withField(quote(self._rest), self._parse_rest())

    def row(self, parsed: Column, table: Json) -> Column:
        """Exactly the columns of a table: rows of all writers must have the same type."""
        given = {}
        if self.rest is not None:
            rest = parsed[self._rest]
            names = F.map_keys(rest)
            once = (F.size(names) > 0) & (F.size(names) == F.size(F.array_distinct(names)))
            given[self.rest] = F.when(once, F.to_json(F.to_variant_object(rest)))
        found = self._found(parsed)
        row = converted(self.shape, table, found, given)
        return found.dropFields(self.word) if row is found and self.member is None else row

    def is_good(self, parsed: Column) -> Column:
        """True if the payload is one value of the shape and parsing changed or lost nothing; never null."""
        items, text = parsed[self.word], self.payload.cast("string")
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
        if self.scalar is not None:
            conditions.append(text.rlike(SCALAR) if self.member is None else self._is_there(parsed))
        wrong = invalid(self.shape, found, text)
        if wrong is not None:
            conditions.append(~F.coalesce(wrong, false()))
        doubtful, kind = suspicious(self.shape, found), strings(self.shape)
        if doubtful is not None and isinstance(kind, T.StructType):
            no_string = self._parse(self._item(kind))[CORRUPT].isNotNull()
            conditions.append(~F.when(doubtful, no_string).otherwise(false()))
        unusual, kind = not_finite(self.shape, found), strict_numbers(self.shape)
        if unusual is not None and isinstance(kind, T.StructType):
            doubtful = reduce(Column.__or__, map(text.contains, WORDS), F.coalesce(unusual, false()))
            strict = self._parse(self._item(kind))
            conditions.append(~F.when(doubtful, strict[CORRUPT].isNotNull()).otherwise(false()))
            wrong = no_number(self.shape, self._found(strict))
            conditions.append(~F.coalesce(F.when(doubtful, wrong), false()))
        if self.rest is not None:
            wrong = invalid(UNDECLARED, parsed[self._rest], text)
            conditions.append(parsed[self._rest].isNotNull())
            conditions += [] if wrong is None else [~F.coalesce(wrong, false())]
        return F.coalesce(reduce(Column.__and__, conditions), false())

    @property
    def _mark(self) -> T.StructField:
        return T.StructField(self.word, T.BooleanType())

    @property
    def _rest(self) -> str:
        return f"{self.word}:rest"

    def _item(self, kind: T.StructType) -> T.StructType:
        """The type for parsing the value and the mark, if the value is a struct of this type."""
        if self.member is None:
            return T.StructType([*kind.fields, self._mark])
        held = kind if self.scalar is None else kind.fields[0].dataType
        return T.StructType([T.StructField(self.member, held), self._mark])

    def _found(self, parsed: Column) -> Column:
        """The parsed value: a struct of the shape's fields."""
        item = F.get(parsed[self.word], F.lit(0))
        if self.member is None:
            return item
        held = item[self.member]
        return held if self.scalar is None else F.struct(held.alias(self.scalar))

    def _is_there(self, parsed: Column) -> Column:
        """Whether the object has the member, even if null."""
        found = self._found(parsed)[self.scalar]
        any_value = T.StructType([T.StructField(self.member or "", T.VariantType()), self._mark])
        there = F.get(self._parse(any_value)[self.word], F.lit(0))[self.member].isNotNull()
        return F.when(found.isNull(), there).otherwise(~false())

    def _parse_rest(self) -> Column:
        """The undeclared fields by name; duplicates are kept. Null if it is not JSON."""
        declared = [each["name"] for each in self.shape["fields"]]
        fields = T.MapType(T.StringType(), T.VariantType())
        member = self.member
        found = self._parse(fields if member is None else T.StructType([T.StructField(member, fields)]))
        item = F.get(found[self.word], F.lit(0))
        first = item if member is None else item[member]
        return F.when(found[CORRUPT].isNull(), F.map_filter(first, lambda name, _: ~name.isin(*declared)))

    def _parse(self, item: T.DataType, options: dict[str, str] = STRICT) -> Column:
        schema = T.StructType(
            [T.StructField(self.word, T.ArrayType(item)), T.StructField(CORRUPT, T.StringType())]
        )
        before, after = f'{{"{self.word}":[', f',{{"{self.word}":true}}]}}'
        if self.scalar is not None and self.member is None:
            before, after = f'{before}{{"{self.scalar}":', f"}}{after}"
        framed = F.concat(F.lit(bytearray(before.encode())), self.payload, F.lit(bytearray(after.encode())))
        return F.from_json(framed.cast("string"), schema, options)
