"""The Avro schema that a writer's bytes are read with, so that they come out as a table's columns; and the frame around both."""

from __future__ import annotations

import json

from calve.avro import WIDENINGS, SchemaProblem, column_type, join, show
from calve.columns import Json


def reader_for(writer: Json, table: Json) -> Json:
    """The Avro schema to read `writer`'s (expanded) bytes with, so that they come out as the table's columns, in their order.

    Named types keep the writer's names, enums the writer's symbols: both must match for Avro to resolve them.

    Raises:
        SchemaProblem: the writer's bytes cannot be read as this table's columns.
    """
    return _Reader().record(writer, table, "")


class _Reader:
    """Builds one reader schema, in which a name is defined once: the same record again is a reference to it.

    A record that the table holds twice with different columns gets a second name: Avro resolves it by its shape.
    """

    def __init__(self) -> None:
        self.defined: dict[str, int] = {}
        self.records: dict[tuple[str, str], str] = {}

    def record(self, writer: Json, table: Json, path: str) -> Json:
        known = (writer["name"], json.dumps(table))
        if known in self.records:
            return self.records[known]
        name = self.records[known] = self._fresh(writer["name"])
        written = {each["name"]: each for each in writer["fields"]}
        fields = []
        for column in table["fields"]:
            where = join(path, column["name"])
            if column["name"] in written:
                fields.append(
                    {
                        "name": column["name"],
                        "type": self.type(written[column["name"]]["type"], column["type"], where),
                    }
                )
            else:
                fields.append(
                    {"name": column["name"], "type": ["null", self.absent(column["type"])], "default": None}
                )
        return {"type": "record", "name": name, "fields": fields}

    def type(self, writer: Json, column: Json, path: str) -> Json:
        if isinstance(writer, list):
            return [branch if branch == "null" else self.type(branch, column, path) for branch in writer]
        node = {"type": writer} if isinstance(writer, str) else writer
        if isinstance(column, dict):
            return self._nested(node, column, path)
        own = column_type(node, path)
        if (own, column) in WIDENINGS:
            return column
        if own != column:
            raise SchemaProblem(path, f"the table holds {show(column)}, the writer wrote {show(own)}")
        if node["type"] in ("enum", "fixed"):
            first = node["name"] not in self.defined
            self.defined.setdefault(node["name"], 0)
            return node if first else node["name"]
        return node

    def _nested(self, node: Json, column: Json, path: str) -> Json:
        match column["type"], node["type"]:
            case "struct", "record" | "error":
                return self.record(node, column, path)
            case "list", "array":
                return {"type": "array", "items": self.type(node["items"], column["element"], f"{path}[]")}
            case "map", "map":
                return {"type": "map", "values": self.type(node["values"], column["value"], f"{path}{{}}")}
        raise SchemaProblem(path, f"the table holds a {column['type']}, the writer wrote {node['type']}")

    def absent(self, column: Json) -> Json:
        """An Avro type that Spark maps to this column; only nulls are ever read with it."""
        if isinstance(column, str):
            return self._absent_primitive(column)
        match column["type"]:
            case "struct":
                fields = [
                    {"name": each["name"], "type": ["null", self.absent(each["type"])], "default": None}
                    for each in column["fields"]
                ]
                return {"type": "record", "name": self._fresh("calve_absent"), "fields": fields}
            case "list":
                return {"type": "array", "items": ["null", self.absent(column["element"])]}
            case _:
                return {"type": "map", "values": ["null", self.absent(column["value"])]}

    def _absent_primitive(self, column: str) -> Json:
        if column.startswith("decimal"):
            precision, scale = (int(n) for n in column[8:-1].split(","))
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        if column.startswith("fixed"):
            return "bytes"
        logical = {"date": ("int", "date"), "timestamptz": ("long", "timestamp-micros")} | {
            "timestamp": ("long", "local-timestamp-micros")
        }
        if column in logical:
            kind, name = logical[column]
            return {"type": kind, "logicalType": name}
        return "bytes" if column == "binary" else column

    def _fresh(self, name: str) -> str:
        uses = self.defined.get(name, -1) + 1
        self.defined[name] = uses
        return name if uses == 0 else f"{name}_calve{uses}"


def framed(schema: Json) -> Json:
    """A record of the frame (5 bytes), the value, and the 8 bytes appended by the reader (see `glue_jobs.decode`)."""
    return {
        "type": "record",
        "name": "calve_framed",
        "fields": [
            {"name": "frame", "type": {"type": "fixed", "name": "calve_frame", "size": 5}},
            *_tail(schema),
        ],
    }


def unframed(schema: Json) -> Json:
    """`framed` for reading: the frame is skipped."""
    return {"type": "record", "name": "calve_framed", "fields": _tail(schema)}


def _tail(schema: Json) -> list[Json]:
    return [
        {"name": "value", "type": schema},
        {"name": "end", "type": {"type": "fixed", "name": "calve_end", "size": 8}},
    ]
