"""Compiles an Avro schema to a program of numbers, which a machine executes to decode values into cells of columns.

A new schema needs no compilation of code: `glue_jobs.decode.machines.avro_machine` is one loop that runs any program over many
records. Records are the rows of level 0. Each list and each map opens a level whose rows are its items.
A level has columns of cells (64-bit numbers) and of marks (bytes; 1 means there is a value). `Program.row` defines the
meaning of the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from calve.config.engine_choice import Unsupported
from calve.decoding.avro_operations import (
    JUMP_TO,
    SECOND,
    WIDTH,
    Absent,
    B,
    Group,
    Items,
    Leaf,
    Op,
    Pairs,
    Part,
    Program,
)
from calve.decoding.decode_plan import DecodePlan
from calve.decoding.json_program import json_program
from calve.schema.avro import branches
from calve.schema.columns import Json, struct
from calve.schema.writers import AvroWriter, JsonWriter

NUMBERS = {"boolean": Op.BOOLEAN, "int": Op.INT, "long": Op.LONG, "float": Op.FLOAT, "double": Op.DOUBLE}
SKIPPED = {
    "boolean": (Op.SKIP_FIXED, 1), "int": (Op.SKIP_INT, 0), "enum": (Op.SKIP_INT, 0), "long": (Op.SKIP_LONG, 0),
    "float": (Op.SKIP_FIXED, 4), "double": (Op.SKIP_FIXED, 8), "bytes": (Op.SKIP_BYTES, 0), "string": (Op.SKIP_BYTES, 0),
}  # fmt: skip
MILLIS = ("timestamp-millis", "local-timestamp-millis")


def program(writer: AvroWriter, columns: Json) -> Program:
    """The program that reads a writer's values, after their prefix, into its columns (Iceberg, JSON form).

    Raises `Unsupported` if there is none.
    """
    written, read = writer.types
    names = {each["name"] for each in read["fields"]}
    wanted = struct(*(each for each in columns["fields"] if each["name"] in names))
    compiler = _Compiler()
    row = Group(wanted, None, compiler.fields(_Value(written, read, writer.shape, wanted)))
    compiler.emit(Op.END)
    code = tuple(number for each in compiler.code for number in each)
    pool, cells, marks = tuple(compiler.pool), tuple(compiler.cells), tuple(compiler.marks)
    return Program(code, pool, cells, marks, compiler.levels, compiler.depth, row)


def reasons(decoding: DecodePlan, columns: Json) -> list[str]:
    """Why records need the row engine. Empty if each writer has a `program`, or needs none: Protobuf, plain bytes and text."""
    found: dict[str, None] = {}
    for writer in (*decoding.writers, *(decoding.key.writers if decoding.key else ())):
        try:
            match writer:
                case AvroWriter():
                    program(writer, columns)
                case JsonWriter():
                    json_program(writer, columns)
        except Unsupported as problem:
            found[problem.message] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class _Value:
    """The types of a value as written and as read, its conversion afterwards, and its column.

    Without a column it is still read, because it must be valid, but its cells are unused. optional: some rows lack it.
    null: the place of null in a union with one other type, or -1.
    """

    written: Json
    read: Json
    shape: Json | None
    column: Json | None
    optional: bool = False
    null: int = -1


@dataclass(slots=True)
class _Compiler:
    """level: the level whose rows are written now. unmarked: a column of unused marks for each level.

    maps: the number of Avro maps around the current value. A map value that does not fit its column is no error until it is
    known whether a later entry has its key.
    """

    code: list[list[int]] = field(default_factory=list)
    pool: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    unmarked: dict[int, int] = field(default_factory=dict)
    level: int = 0
    levels: int = 1
    inside: int = 0
    depth: int = 0
    maps: int = 0

    @property
    def here(self) -> int:
        return len(self.code) * WIDTH

    def emit(
        self, op: Op, *, cell: int = 0, mark: int | None = None, null: int = -1, a: int = 0
    ) -> list[int]:
        """Add an operation; after null it continues with the next one."""
        if mark is None:
            if self.level not in self.unmarked:
                self.unmarked[self.level] = self.mark()
            mark = self.unmarked[self.level]
        self.code.append(made := [int(op), cell, mark, null, self.here + WIDTH, a, 0, 0])
        return made

    def cell(self) -> int:
        self.cells.append(self.level)
        return len(self.cells) - 1

    def mark(self) -> int:
        self.marks.append(self.level)
        return len(self.marks) - 1

    def fields(self, of: _Value) -> tuple[Part, ...]:
        """Read the column's fields, in its order."""
        kinds = {each["name"]: each["type"] for each in of.read["fields"]}
        shapes = {source: inner for _, source, inner, _ in of.shape["struct"]} if of.shape else {}
        wanted = {each["name"]: each["type"] for each in of.column["fields"]} if of.column else {}
        found: dict[str, Part] = {}
        for each in of.written["fields"]:
            name, kind = each["name"], each["type"]
            if name in kinds:
                value = _Value(kind, kinds[name], shapes.get(name), wanted.get(name), of.optional)
                found[name] = self.read(value)
            else:
                self.skip(kind)
        return tuple(found.get(name) or Absent(kind) for name, kind in wanted.items())

    def read(self, of: _Value) -> Part:
        if isinstance(of.written, list):
            if (null := _null_of_two(of.written)) is None:
                return self.union(of)
            other = 1 - null
            of = replace(of, written=of.written[other], read=of.read[other], optional=True, null=null)
        node: Json = {"type": of.written} if isinstance(of.written, str) else of.written
        of = replace(of, written=node)
        match node["type"]:
            case "record":
                mark = self.mark() if of.optional else None
                marked = self.emit(Op.MARK, mark=mark, null=of.null) if of.optional else None
                fields = self.fields(of)
                if marked:
                    marked[JUMP_TO] = self.here
                return Group(of.column, mark, fields)
            case "array" | "map":
                return self.collection(of)
        return self.leaf(of)

    def union(self, of: _Value) -> Part:
        several = len(branches(of.written)) > 1
        optional = of.optional or len(branches(of.written)) < len(of.written)
        mark = self.mark() if several and optional else None
        fields: dict[str, tuple[str, Json | None, Json]] = {}
        for name, member, inner, kind in of.shape["struct"] if several and of.shape else ():
            fields[member] = (name, inner, kind)
        found: dict[str, Part] = {}

        def branch(place: int, each: Json) -> None:
            if each == "null":
                return
            member = f"member{len(branches(of.written[:place]))}"
            name, inner, kind = fields.get(member, ("", None, None)) if several else ("", of.shape, of.column)
            if mark is not None:
                self.emit(Op.MARK, mark=mark)
            found[name] = self.read(_Value(each, of.read[place], inner, kind, optional or several))

        self.branches(of.written, branch)
        if not several:
            return found[""]
        wanted = of.column["fields"] if of.column else ()
        parts = tuple(found.get(each["name"]) or Absent(each["type"]) for each in wanted)
        return Group(of.column, mark, parts)

    def branches(self, written: Sequence[Json], branch: Callable[[int, Json], None]) -> None:
        """A union's operation, and those of each of its types. The pool has the place where each type begins."""
        jumps, ends = len(self.pool), []
        self.emit(Op.UNION, a=len(written))[B] = jumps
        self.pool += [0] * len(written)
        for place, each in enumerate(written):
            self.pool[jumps + place] = self.here
            branch(place, each)
            ends.append(self.emit(Op.JUMP))
        for end in ends:
            end[JUMP_TO] = self.here

    def collection(self, of: _Value) -> Part:
        cell, mark, outer = self.cell(), self.mark() if of.optional else None, self.level
        begun = self.emit(Op.LIST, cell=cell, mark=mark, null=of.null, a=self.levels)
        self.level, self.levels, self.inside = self.levels, self.levels + 1, self.inside + 1
        self.depth = max(self.depth, self.inside)
        level, body = self.level, self.here
        parts = self.item(of)
        self.emit(Op.NEXT, a=level)[JUMP_TO] = body
        begun[JUMP_TO] = self.here
        self.level, self.inside = outer, self.inside - 1
        if len(parts) == 1:
            return Items(of.column, cell, mark, level, parts[0])
        key, value = parts
        if not isinstance(key, Leaf):
            raise Unsupported("its maps have keys with fields")
        return Pairs(of.column, cell, mark, level, key, value, listed=of.written["type"] == "array")

    def item(self, of: _Value) -> tuple[Part, ...]:
        """Read an item of a list, or key and value of a map entry."""
        node, shape, column = of.written, of.shape, of.column
        if node["type"] == "map":
            key = self.leaf(_Value({"type": "string"}, "string", None, "string"))
            inner, kind = shape and shape["map"], column and column["value"]
            self.maps += 1
            value = self.read(_Value(node["values"], of.read["values"], inner, kind))
            self.maps -= 1
            return key, value
        items, read = node["items"], of.read["items"]
        if not _takes_bytes(items):
            raise Unsupported("its lists have items without bytes")
        if shape and "entries" in shape:
            kinds = [{"name": name, "type": column and column[name]} for name in ("key", "value")]
            return self.fields(_Value(items, read, shape["entries"], struct(*kinds)))
        return (self.read(_Value(items, read, shape and shape["list"], column and column["element"])),)

    def leaf(self, of: _Value) -> Leaf:
        kind, read, column = of.written["type"], of.read, of.column
        logical = read.get("logicalType") if isinstance(read, dict) else None
        if of.shape and "moment" in of.shape:
            raise Unsupported("its values have timestamps as text")
        unfit = logical == "decimal" or logical in MILLIS
        in_map = min(self.maps, 1)
        cell, size = self.cell(), int(of.written.get("size", 0))
        mark = self.mark() if of.optional or (unfit and in_map > 0) else None
        if logical == "decimal":
            fixed = size if kind == "fixed" else -1
            made = self.emit(Op.DECIMAL, cell=cell, mark=mark, null=of.null, a=fixed)
            made[B], made[SECOND] = len(self.pool), self.cell()
            high, low = divmod(10 ** int(read["precision"]), 2**64)
            self.pool += [low - 2**64 if low >= 2**63 else low, high, in_map]
            return Leaf(column, "decimal", cell, mark)
        symbols = tuple(of.written["symbols"]) if kind == "enum" else ()
        if unfit:
            op, a = Op.MILLIS, in_map
        elif kind == "enum":
            op, a = Op.ENUM, len(symbols)
        elif kind == "fixed":
            op, a = Op.FIXED, size
        else:
            op, a = NUMBERS.get(kind, Op.BYTES), 0
            kind = kind if kind in NUMBERS else "bytes"
        self.emit(op, cell=cell, mark=mark, null=of.null, a=a)
        return Leaf(column, kind, cell, mark, size, symbols)

    def skip(self, written: Json, null: int = -1) -> None:
        """Skip a value without a column. As in Avro's Java, skipping checks less than reading."""
        if isinstance(written, list):
            if (place := _null_of_two(written)) is not None:
                self.skip(written[1 - place], place)
            else:
                self.branches(written, lambda _, each: self.skip(each))
            return
        node: Json = {"type": written} if isinstance(written, str) else written
        match node["type"]:
            case "null":
                pass
            case "record":
                begun = self.emit(Op.MARK, null=null)
                for each in node["fields"]:
                    self.skip(each["type"])
                begun[JUMP_TO] = self.here
            case "array" | "map":
                self.skip_collection(node, null)
            case "fixed":
                self.emit(Op.SKIP_FIXED, null=null, a=node["size"])
            case kind:
                op, size = SKIPPED[kind]
                self.emit(op, null=null, a=size)

    def skip_collection(self, node: Json, null: int) -> None:
        items = node["items"] if node["type"] == "array" else node["values"]
        takes_bytes = node["type"] == "map" or _takes_bytes(items)
        begun = self.emit(Op.SKIP_LIST, null=null, a=int(takes_bytes))
        self.inside += 1
        self.depth = max(self.depth, self.inside)
        body = self.here
        if node["type"] == "map":
            self.skip("string")
        self.skip(items)
        self.emit(Op.SKIP_NEXT)[JUMP_TO] = body
        self.inside -= 1
        begun[JUMP_TO] = self.here


def _null_of_two(union: Sequence[Json]) -> int | None:
    """The place of null in a union with one other type; None for other unions."""
    return union.index("null") if len(union) == 2 and len(branches(union)) == 1 else None


def _takes_bytes(node: Json) -> bool:
    if isinstance(node, dict) and node["type"] == "record":
        return any(_takes_bytes(each["type"]) for each in node["fields"])
    if isinstance(node, dict) and node["type"] == "fixed":
        return int(node["size"]) > 0
    return bool(node != "null")
