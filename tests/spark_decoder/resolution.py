"""The Avro schemas by which Spark, and any library with schema resolution, reads what `calve.schema.avro_reader` describes.

Every named type gets a unique name, and every field the name of its column. Avro's bytes contain no names. So both schemas agree
by construction, even after renames, reuse, or names that Avro's Java refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from calve.schema.avro_reader import Value, reading
from calve.schema.columns import Json, decimal_digits

FLOATS, INTEGERS = {"float", "double"}, {"int", "long"}
LOGICAL = {
    "date": {"type": "int", "logicalType": "date"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
}
MILLIS = {"timestamptz": "timestamp-millis", "timestamp": "local-timestamp-millis"}


@dataclass(frozen=True, slots=True)
class Resolution:
    """The writer's schema, the reader's, and the conversion of the value that Spark makes of them.

    `shape` is None if the value needs no conversion, otherwise one of
    `{"cast": type}`, `{"moment": type}` (a timestamp as text), `{"millis": type}` (a timestamp as a number),
    `{"list": shape}`, `{"map": shape}`, `{"entries": shape}` (a list of key and value, to become a map) and
    `{"struct": [[name, source, shape, type]]}`, also of a union, whose fields Spark names `member0`, `member1` (without null).
    `source` is None if the value lacks the field: it is a null of this type.
    """

    writer: Json
    reader: Json
    shape: Json | None


def resolution(writer: Json, table: Json) -> Resolution:
    """As `reading`."""
    return resolved(reading(writer, table))


def resolved(value: Value) -> Resolution:
    return _Resolver().of(value)


@dataclass(slots=True)
class _Resolver:
    numbers: count[int] = field(default_factory=count)

    def of(self, value: Value) -> Resolution:
        match value.kind:
            case "record":
                return self.record(value)
            case "union":
                return self.union(value)
            case "array":
                return self.collection("array", "items", "list", value)
            case "map":
                return self.collection("map", "values", "map", value)
            case "entries":
                return self.entries(value)
        return self.leaf(value)

    def record(self, value: Value) -> Resolution:
        found = {name: self.of(part) for name, part in value.parts if name}
        names = {each["name"] for each in value.column["fields"]}
        unused = (name for name in map("unused{}".format, count()) if name not in names)
        fields = [
            {"name": name, "type": found[name].writer}
            if name
            else {"name": next(unused), "type": self.copy(part)}
            for name, part in value.parts
        ]
        read, shapes = [], []
        for column in value.column["fields"]:
            name = column["name"]
            if name in found:
                read.append({"name": name, "type": found[name].reader})
                shapes.append([name, name, found[name].shape, column["type"]])
            elif (absent := self.absent(column["type"])) is not None:
                read.append({"name": name, "type": ["null", absent], "default": None})
                shapes.append([name, name, None, column["type"]])
            else:
                shapes.append([name, None, None, column["type"]])
        named = {"type": "record", "name": self.name()}
        shaped = any(shape or source is None for _, source, shape, _ in shapes)
        shape = {"struct": shapes} if shaped else None
        return Resolution(named | {"fields": fields}, named | {"fields": read}, shape)

    def union(self, value: Value) -> Resolution:
        """Both unions, in the writer's order.

        Spark reads a union of two numbers as the wider one. A third type, which no writer writes, prevents that.
        """
        several = sum(part.kind != "null" for _, part in value.parts) > 1
        made: list[Resolution] = []
        members: dict[str | None, tuple[str, Json]] = {}
        shape = None
        for name, part in value.parts:
            if part.kind == "null":
                made.append(Resolution("null", "null", None))
            elif several and name is None:
                copied = self.copy(part)
                made.append(Resolution(copied, copied, None))
            else:
                made.append(self.of(part))
                number = sum(each.writer != "null" for each in made) - 1
                members[name], shape = (f"member{number}", made[-1].shape), made[-1].shape
        if several:
            fields = value.column["fields"]
            shape = {
                "struct": [
                    [each["name"], *members.get(each["name"], (None, None)), each["type"]] for each in fields
                ]
            }
        read = [each.reader for each in made]
        kinds = {each if isinstance(each, str) else each["type"] for each in read} - {"null"}
        if kinds in (FLOATS, INTEGERS):
            read.append({"type": "fixed", "name": self.name(), "size": 1})
        return Resolution([each.writer for each in made], read, shape)

    def collection(self, kind: str, inside: str, shape: str, value: Value) -> Resolution:
        made = self.of(value.inner)
        return Resolution(
            {"type": kind, inside: made.writer},
            {"type": kind, inside: made.reader},
            {shape: made.shape} if made.shape else None,
        )

    def entries(self, value: Value) -> Resolution:
        sides = [(name, self.of(part)) for name, part in value.inner.parts]
        named = {"type": "record", "name": self.name()}
        by_name = dict(sides)
        written = [{"name": name, "type": side.writer} for name, side in sides]
        read = [{"name": name, "type": by_name[name].reader} for name in ("key", "value")]
        return Resolution(
            {"type": "array", "items": named | {"fields": written}},
            {"type": "array", "items": named | {"fields": read}},
            {"entries": {"struct": [[name, name, by_name[name].shape, None] for name in ("key", "value")]}},
        )

    def leaf(self, value: Value) -> Resolution:
        written, column = self.copy(value), value.column
        plain = written if isinstance(written, dict) else {"type": written}
        match value.conversion:
            case "moment":
                return Resolution(written, written, {"moment": column})
            case "database_millis":
                return Resolution(written, written, {"millis": column})
            case "millis":
                return Resolution(written, plain | {"logicalType": MILLIS[column]}, None)
            case "decimal":
                precision, scale = value.digits
                read = plain | {"logicalType": "decimal", "precision": precision, "scale": scale}
                same = decimal_digits(column) == value.digits
                return Resolution(written, read, None if same else {"cast": column})
        if column in LOGICAL:
            return Resolution(written, LOGICAL[column], None)
        widened = value.kind in FLOATS | INTEGERS and column != value.kind
        return Resolution(written, written, {"cast": column} if widened else None)

    def copy(self, value: Value) -> Json:
        """The type with new names, and only with what its bytes need."""
        match value.kind:
            case "union":
                return [self.copy(part) for _, part in value.parts]
            case "record":
                fields = [
                    {"name": f"f{n}", "type": self.copy(part)} for n, (_, part) in enumerate(value.parts)
                ]
                return {"type": "record", "name": self.name(), "fields": fields}
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": list(value.symbols)}
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": value.size}
            case "array":
                return {"type": "array", "items": self.copy(value.inner)}
            case "map":
                return {"type": "map", "values": self.copy(value.inner)}
        return value.kind

    def absent(self, column: Json) -> Json | None:
        """An Avro type that Spark maps to this column, read as null; None if Avro has none."""
        if isinstance(column, str):
            if digits := decimal_digits(column):
                return {"type": "bytes", "logicalType": "decimal", "precision": digits[0], "scale": digits[1]}
            return LOGICAL.get(
                column, "bytes" if column == "binary" or column.startswith("fixed") else column
            )
        match column["type"]:
            case "struct":
                kinds = {each["name"]: self.absent(each["type"]) for each in column["fields"]}
                if None in kinds.values():
                    return None
                named = kinds.items()
                fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in named]
                return {"type": "record", "name": self.name(), "fields": fields}
            case "list":
                element = self.absent(column["element"])
                return element and {"type": "array", "items": ["null", element]}
            case _:
                value = self.absent(column["value"]) if column["key"] == "string" else None
                return value and {"type": "map", "values": ["null", value]}

    def name(self) -> str:
        return f"calve_{next(self.numbers)}"


def framed(schema: Json, size: int = 0) -> Json:
    """A record of the frame (`size` bytes; none for reading, which skips it), the value, and 8 bytes that the reader appends.

    See `tests.spark_decoder.decode`.
    """
    frame = {"name": "frame", "type": {"type": "fixed", "name": "calve_frame", "size": size}}
    value = {"name": "value", "type": schema}
    end = {"name": "end", "type": {"type": "fixed", "name": "calve_end", "size": 8}}
    return {"type": "record", "name": "calve_framed", "fields": [*([frame] if size else []), value, end]}
