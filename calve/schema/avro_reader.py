"""The Avro reader schemas that turn a writer's bytes into a table's columns; and the frame around the bytes.

The writer's schema is renamed: every named type gets a unique name, and every field the name of its column. Avro's bytes contain
no names. So both schemas agree by construction, even after renames, reuse, or names that Avro's Java refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from calve.schema.avro import branch_names, branches, column_type, is_map
from calve.schema.change_events import MILLIS
from calve.schema.columns import Json, decimal_digits, join
from calve.schema.evolution import mismatch, show, widens

FLOATS, INTEGERS = {"float", "double"}, {"int", "long"}
SPARK_LOGICAL = {
    "date": {"type": "int", "logicalType": "date"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
}


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
    """How to read an (expanded) writer's bytes as the table's columns, in their order.

    A column may have `written`: the name by which this writer writes it, or None if it does not.
    Raises `SchemaProblem` if the writer's bytes cannot be read as this table's columns.
    """
    return _Resolver().record(writer, table, "")


@dataclass(slots=True)
class _Resolver:
    numbers: count[int] = field(default_factory=count)

    def record(self, writer: Json, table: Json, path: str) -> Resolution:
        written = {each["name"]: each["type"] for each in writer["fields"]}
        columns = _by_written_name(table)
        found = {
            name: self.type(kind, columns[name]["type"], join(path, columns[name]["name"]))
            for name, kind in written.items()
            if name in columns
        }
        names = {each["name"] for each in table["fields"]}
        unused = (name for name in map("unused{}".format, count()) if name not in names)
        fields = [
            {"name": columns[name]["name"], "type": found[name].writer}
            if name in found
            else {"name": next(unused), "type": self.copy(kind)}
            for name, kind in written.items()
        ]
        read, shapes = [], []
        for column in table["fields"]:
            name, source = column["name"], column.get("written", column["name"])
            if source in found:
                read.append({"name": name, "type": found[source].reader})
                shapes.append([name, name, found[source].shape, column["type"]])
            elif (absent := self.absent(column["type"])) is not None:
                read.append({"name": name, "type": ["null", absent], "default": None})
                shapes.append([name, name, None, column["type"]])
            else:
                shapes.append([name, None, None, column["type"]])
        named = {"type": "record", "name": self.name()}
        shaped = any(shape or source is None for _, source, shape, _ in shapes)
        shape = {"struct": shapes} if shaped else None
        return Resolution(named | {"fields": fields}, named | {"fields": read}, shape)

    def type(self, writer: Json, column: Json, path: str) -> Resolution:
        if isinstance(writer, list):
            return self.union(writer, column, path)
        node = {"type": writer} if isinstance(writer, str) else writer
        return self.nested(node, column, path) if isinstance(column, dict) else self.leaf(node, column, path)

    def union(self, writer: list[Json], column: Json, path: str) -> Resolution:
        """Both unions, in the writer's order.

        Spark reads a union of two numbers as the wider one. A third type, which no writer writes, prevents that.
        """
        made, shape = self.members(writer, column, path)
        for place, each in enumerate(writer):
            if each == "null":
                made.insert(place, Resolution("null", "null", None))
        read = [each.reader for each in made]
        kinds = {each if isinstance(each, str) else each["type"] for each in read} - {"null"}
        if kinds in (FLOATS, INTEGERS):
            read.append({"type": "fixed", "name": self.name(), "size": 1})
        return Resolution([each.writer for each in made], read, shape)

    def members(self, writer: list[Json], column: Json, path: str) -> tuple[list[Resolution], Json | None]:
        """Each type of a union without null, and the shape of the union."""
        found = branches(writer)
        if len(found) == 1:
            only = self.type(found[0], column, path)
            return [only], only.shape
        if not isinstance(column, dict) or column["type"] != "struct":
            raise mismatch(show(column), "a union of several types", path)
        columns, made, members = _by_written_name(column), [], {}
        for number, (name, each) in enumerate(zip(branch_names(writer, path), found, strict=True)):
            if name not in columns:
                made.append(Resolution(skipped := self.copy(each), skipped, None))
                continue
            node = {"type": each} if isinstance(each, str) else each
            kind, where = columns[name]["type"], join(path, name)
            made.append(
                self.nested(node, kind, where) if isinstance(kind, dict) else self.cast(node, kind, where)
            )
            members[columns[name]["name"]] = (f"member{number}", made[-1].shape)
        absent = (None, None)
        fields = [
            [each["name"], *members.get(each["name"], absent), each["type"]] for each in column["fields"]
        ]
        return made, {"struct": fields}

    def nested(self, node: Json, column: Json, path: str) -> Resolution:
        match column["type"], node["type"]:
            case "struct", "record" | "error":
                return self.record(node, column, path)
            case "list", "array":
                made = self.type(node["items"], column["element"], f"{path}[]")
                return self._collection("array", "items", made, "list")
            case "map", "map" if column["key"] == "string":
                made = self.type(node["values"], column["value"], f"{path}{{}}")
                return self._collection("map", "values", made, "map")
            case "map", "array" if is_map(node):
                return self.entries(node, column, path)
        raise mismatch(f"a {column['type']}", f"a {node['type']}", path)

    def entries(self, node: Json, column: Json, path: str) -> Resolution:
        """A map written as a list of entries. With string keys, key first, its bytes are those of Avro's map."""
        first, last = node["items"]["fields"]
        kinds = {each["name"]: each["type"] for each in (first, last)}
        value = self.type(kinds["value"], column["value"], f"{path}{{}}")
        plain = kinds["key"] if isinstance(kinds["key"], str) else kinds["key"]["type"]
        if first["name"] == "key" and plain == "string" and column["key"] == "string":
            return self._collection("map", "values", value, "map")
        key = self.leaf({"type": plain} if kinds["key"] == plain else kinds["key"], column["key"], path)
        sides = {"key": key, "value": value}
        named = {"type": "record", "name": self.name()}
        written = [{"name": each["name"], "type": sides[each["name"]].writer} for each in (first, last)]
        read = [{"name": name, "type": side.reader} for name, side in sides.items()]
        return Resolution(
            {"type": "array", "items": named | {"fields": written}},
            {"type": "array", "items": named | {"fields": read}},
            {"entries": {"struct": [[name, name, each.shape, None] for name, each in sides.items()]}},
        )

    def _collection(self, kind: str, inside: str, made: Resolution, shape: str) -> Resolution:
        return Resolution(
            {"type": kind, inside: made.writer},
            {"type": kind, inside: made.reader},
            {shape: made.shape} if made.shape else None,
        )

    def leaf(self, node: Json, column: Json, path: str) -> Resolution:
        own = column_type(node, path)
        if isinstance(own, str) and widens(own, column) and not own.startswith("decimal"):
            return Resolution(node["type"], column, None)
        return self.cast(node, column, path)

    def cast(self, node: Json, column: Json, path: str) -> Resolution:
        """A type without fields; with a cast if the column is wider."""
        own = column_type(node, path)
        if own != column and not widens(own, column):
            raise mismatch(show(column), show(own), path)
        written = self.copy(node)
        if node["type"] == "string" and own == "timestamptz":
            return Resolution(written, written, {"moment": column})
        if node.get("logicalType") == MILLIS:
            return Resolution(written, written, {"millis": column})
        return Resolution(written, _logical(written, node, own), {"cast": column} if own != column else None)

    def copy(self, node: Json) -> Json:
        """The type with new names, and only with what its bytes need."""
        if isinstance(node, list):
            return [self.copy(each) for each in node]
        if isinstance(node, str):
            return node
        match node["type"]:
            case "record" | "error":
                fields = [{"name": each["name"], "type": self.copy(each["type"])} for each in node["fields"]]
                return {"type": "record", "name": self.name(), "fields": fields}
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": node["symbols"]}
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": node["size"]}
            case "array":
                return {"type": "array", "items": self.copy(node["items"])}
            case "map":
                return {"type": "map", "values": self.copy(node["values"])}
            case kind:
                return kind

    def absent(self, column: Json) -> Json | None:
        """An Avro type that Spark maps to this column, read as null; None if Avro has none."""
        if isinstance(column, str):
            if column in SPARK_LOGICAL or decimal_digits(column):
                node = SPARK_LOGICAL.get(column, {"type": "bytes"})
                return _logical(node["type"], node, column)
            return "bytes" if column == "binary" or column.startswith("fixed") else column
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


def _by_written_name(struct: Json) -> dict[str, Json]:
    named = ((each.get("written", each["name"]), each) for each in struct["fields"])
    return {name: each for name, each in named if name is not None}


def _logical(written: Json, node: Json, own: str) -> Json:
    """The type for reading, with a logical type only if Spark should use it."""
    if digits := decimal_digits(own):
        precision, scale = digits
        kind = written if isinstance(written, dict) else {"type": written}
        return kind | {"logicalType": "decimal", "precision": precision, "scale": scale}
    if own in SPARK_LOGICAL:
        return {"type": node["type"], "logicalType": node["logicalType"]}
    return written


def framed(schema: Json, size: int = 0) -> Json:
    """A record of the frame (`size` bytes; none for reading, which skips it), the value, and 8 bytes that the reader appends.

    See `glue_jobs.decode.decode`.
    """
    frame = {"name": "frame", "type": {"type": "fixed", "name": "calve_frame", "size": size}}
    value = {"name": "value", "type": schema}
    end = {"name": "end", "type": {"type": "fixed", "name": "calve_end", "size": 8}}
    return {"type": "record", "name": "calve_framed", "fields": [*([frame] if size else []), value, end]}
