"""JSON text to columns by Spark's own parser, which forgives much; what it forgives is refused here, in the same pass.

The value is parsed inside of an array that a random word begins and ends: `{"W":[VALUE,{"W":true}]}`. Only where VALUE is one
whole JSON value are there two items and is the last one marked; what closes the array early, or adds to it, cannot know W.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.columns import Json
from glue_jobs.json_leaves import converted, false, invalid, parse_type, strings, suspicious

CORRUPT = "calve:corrupt"
STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
HIGH, LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
LONE_SURROGATE = rf"(?<!\\)(?:\\\\)*+(?:{HIGH}(?!{LOW})|(?<!{HIGH}){LOW})"


@dataclass(frozen=True, slots=True)
class JsonValue:
    """Payloads (binary) that hold this shape of `calve.json_schema`; `word` is the random one of the round."""

    payload: Column
    shape: Json
    word: str

    def parsed(self) -> Column:
        """What the parser makes of it: to be evaluated once, in a projection of its own."""
        return self._parse(parse_type(self.shape))

    def row(self, parsed: Column, table: Json) -> Column:
        """The columns of a table."""
        return converted(self.shape, table, F.get(parsed[self.word], F.lit(0)))

    def is_good(self, parsed: Column) -> Column:
        """True where the payload is one value of the shape, and nothing of it was changed or lost on the way; never null."""
        items, text = parsed[self.word], self.payload.cast("string")
        found = F.get(items, F.lit(0))
        escaped_surrogate = text.contains("\\ud") | text.contains("\\uD")
        conditions = [
            parsed[CORRUPT].isNull(),
            F.size(items) == 2,
            F.get(items, F.lit(1))[self.word],
            found.isNotNull(),
            F.is_valid_utf8(text),
            ~F.when(escaped_surrogate, text.rlike(LONE_SURROGATE)).otherwise(false()),
        ]
        wrong = invalid(self.shape, found, text)
        if wrong is not None:
            conditions.append(~F.coalesce(wrong, false()))
        doubtful, kind = suspicious(self.shape, found), strings(self.shape)
        if doubtful is not None and isinstance(kind, T.StructType):
            no_string = self._parse(kind)[CORRUPT].isNotNull()
            conditions.append(~F.when(doubtful, no_string).otherwise(false()))
        return F.coalesce(reduce(Column.__and__, conditions), false())

    def _parse(self, kind: T.StructType) -> Column:
        item = T.StructType([*kind.fields, T.StructField(self.word, T.BooleanType())])
        schema = T.StructType(
            [T.StructField(self.word, T.ArrayType(item)), T.StructField(CORRUPT, T.StringType())]
        )
        before, after = f'{{"{self.word}":['.encode(), f',{{"{self.word}":true}}]}}'.encode()
        framed = F.concat(F.lit(bytearray(before)), self.payload, F.lit(bytearray(after)))
        return F.from_json(framed.cast("string"), schema, STRICT)
