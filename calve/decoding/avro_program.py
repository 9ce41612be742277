"""Compiles an Avro schema to a program of numbers, which a machine executes to decode values into cells of columns.

A new schema needs no compilation of code: `glue_jobs.engines.columnar.machine` is one loop that runs any program over many
records. Records are the rows of level 0. Each list and each map opens a level whose rows are its items.
A level has columns of cells (64-bit numbers) and of marks (bytes; 1 means there is a value). `Program.row` defines the
meaning of the cells.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

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
from calve.schema.avro import branches
from calve.schema.columns import Json, struct
from calve.schema.writers import AvroWriter, PlainWriter, Writer

NUMBERS = {"boolean": Op.BOOLEAN, "int": Op.INT, "long": Op.LONG, "float": Op.FLOAT, "double": Op.DOUBLE}
SKIPPED = {
    "boolean": (Op.SKIP_FIXED, 1), "int": (Op.SKIP_INT, 0), "enum": (Op.SKIP_INT, 0), "long": (Op.SKIP_LONG, 0),
    "float": (Op.SKIP_FIXED, 4), "double": (Op.SKIP_FIXED, 8), "bytes": (Op.SKIP_BYTES, 0), "string": (Op.SKIP_BYTES, 0),
}  # fmt: skip
MILLIS = ("timestamp-millis", "local-timestamp-millis")


def program(writer: AvroWriter, columns: Json) -> Program:
    """The program that reads a writer's values, after their prefix, into its columns (Iceberg, JSON form).

    Raises:
        Unsupported: there is none.
    """
    written, read = (_field(json.loads(each), "value") for each in (writer.schema, writer.reader))
    names = {each["name"] for each in read["fields"]}
    wanted = struct(*(each for each in columns["fields"] if each["name"] in names))
    compiler = _Compiler()
    fields = compiler.fields(written, read, writer.shape, wanted, optional=False)
    return compiler.program(Group(wanted, None, fields))


def reasons(decoding: DecodePlan, columns: Json) -> list[str]:
    """Why records need the row engine; empty if `program` and plain bytes are sufficient."""
    found: dict[str, None] = {}
    for writer in (*decoding.writers, *(decoding.key.writers if decoding.key else ())):
        try:
            if not isinstance(writer, PlainWriter):
                program(require_avro(writer), columns)
        except Unsupported as problem:
            found[problem.message] = None
    return list(found)


def require_avro(writer: Writer) -> AvroWriter:
    """Raises `Unsupported` if the writer does not write Avro."""
    if not isinstance(writer, AvroWriter):
        raise Unsupported("its values are neither Avro nor plain bytes or text")
    return writer


def _field(record: Json, name: str) -> Json:
    return next(each["type"] for each in record["fields"] if each["name"] == name)


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

    def program(self, row: Group) -> Program:
        self.emit(Op.END)
        code = tuple(number for each in self.code for number in each)
        return Program(
            code, tuple(self.pool), tuple(self.cells), tuple(self.marks), self.levels, self.depth, row
        )

    @property
    def here(self) -> int:
        return len(self.code) * WIDTH

    def emit(
        self, op: Op, *, cell: int = 0, mark: int | None = None, null: int = -1, a: int = 0
    ) -> list[int]:
        """Add an operation; after null it continues with the next one."""
        marked = self.nothing() if mark is None else mark
        self.code.append(made := [int(op), cell, marked, null, self.here + WIDTH, a, 0, 0])
        return made

    def cell(self) -> int:
        self.cells.append(self.level)
        return len(self.cells) - 1

    def mark(self, *, needed: bool) -> int | None:
        if not needed:
            return None
        self.marks.append(self.level)
        return len(self.marks) - 1

    def nothing(self) -> int:
        if self.level not in self.unmarked:
            self.marks.append(self.level)
            self.unmarked[self.level] = len(self.marks) - 1
        return self.unmarked[self.level]

    def fields(
        self, written: Json, read: Json, shape: Json | None, column: Json | None, *, optional: bool
    ) -> tuple[Part, ...]:
        """Read the column's fields, in its order. optional: their parent may be null."""
        kinds = {each["name"]: each["type"] for each in read["fields"]}
        shapes = {name: inner for name, inner, absent in shape["struct"] if not absent} if shape else {}
        wanted = {each["name"]: each["type"] for each in column["fields"]} if column else {}
        found: dict[str, Part] = {}
        for each in written["fields"]:
            name, kind = each["name"], each["type"]
            if name in kinds:
                found[name] = self.read(
                    kind, kinds[name], shapes.get(name), wanted.get(name), optional=optional
                )
            else:
                self.skip(kind)
        return tuple(found.get(name) or Absent(kind) for name, kind in wanted.items())

    def read(
        self, written: Json, read: Json, shape: Json | None, column: Json | None, *, optional: bool
    ) -> Part:
        """Read a value. Without a column it is still read, because it must be valid, but its cells are unused."""
        if not isinstance(written, list):
            return self.one(written, read, shape, column, optional=optional, null=-1)
        if (null := _null_of_two(written)) is not None:
            other = 1 - null
            return self.one(written[other], read[other], shape, column, optional=optional, null=null)
        return self.union(written, read, shape, column, optional=optional)

    def union(
        self,
        written: list[Json],
        read: list[Json],
        shape: Json | None,
        column: Json | None,
        *,
        optional: bool,
    ) -> Part:
        several = len(branches(written)) > 1
        optional = optional or len(branches(written)) < len(written)
        mark = self.mark(needed=several and optional)
        fields: dict[str, tuple[str, Json | None, Json]] = {}
        for name, member, inner, kind in shape["union"] if several and shape else ():
            fields[member] = (name, inner, kind)
        found: dict[str, Part] = {}
        jumps, ends, number = self.jumps(len(written)), [], 0
        for place, each in enumerate(written):
            self.pool[jumps + place] = self.here
            if each != "null":
                name, inner, kind = (
                    fields.get(f"member{number}", ("", None, None)) if several else ("", shape, column)
                )
                number += 1
                if mark is not None:
                    self.emit(Op.MARK, mark=mark)
                found[name] = self.read(each, read[place], inner, kind, optional=optional or several)
            ends.append(self.emit(Op.JUMP))
        for end in ends:
            end[JUMP_TO] = self.here
        if not several:
            return found[""]
        wanted = column["fields"] if column else ()
        return Group(column, mark, tuple(found.get(each["name"]) or Absent(each["type"]) for each in wanted))

    def jumps(self, count: int) -> int:
        """Add a union's operation; returns the place in the pool of each type's next operation."""
        place = len(self.pool)
        self.emit(Op.UNION, a=count)[B] = place
        self.pool += [0] * count
        return place

    def one(
        self, written: Json, read: Json, shape: Json | None, column: Json | None, *, optional: bool, null: int
    ) -> Part:
        """Read a value without a union, or of a union of null and one other type."""
        optional = optional or null >= 0
        node: Json = {"type": written} if isinstance(written, str) else written
        match node["type"]:
            case "record":
                mark = self.mark(needed=optional)
                marked = self.emit(Op.MARK, mark=mark, null=null) if optional else None
                fields = self.fields(node, read, shape, column, optional=optional)
                if marked:
                    marked[JUMP_TO] = self.here
                return Group(column, mark, fields)
            case "array" | "map":
                return self.collection(node, read, shape, column, optional=optional, null=null)
        return self.leaf(node, read, shape, column, optional=optional, null=null)

    def collection(
        self, node: Json, read: Json, shape: Json | None, column: Json | None, *, optional: bool, null: int
    ) -> Part:
        cell, mark, outer = self.cell(), self.mark(needed=optional), self.level
        begun = self.emit(Op.LIST, cell=cell, mark=mark, null=null, a=self.levels)
        self.level, self.levels, self.inside = self.levels, self.levels + 1, self.inside + 1
        self.depth = max(self.depth, self.inside)
        level, body = self.level, self.here
        parts = self.item(node, read, shape, column)
        self.emit(Op.NEXT, a=level)[JUMP_TO] = body
        begun[JUMP_TO] = self.here
        self.level, self.inside = outer, self.inside - 1
        if len(parts) == 1:
            return Items(column, cell, mark, level, parts[0])
        key, value = parts
        if not isinstance(key, Leaf):
            raise Unsupported("keys of its maps have fields")
        return Pairs(column, cell, mark, level, key, value, listed=node["type"] == "array")

    def item(self, node: Json, read: Json, shape: Json | None, column: Json | None) -> tuple[Part, ...]:
        """Read an item of a list, or key and value of a map entry."""
        if node["type"] == "map":
            key = self.leaf({"type": "string"}, "string", None, "string", optional=False, null=-1)
            inner, kind = shape and shape["map"], column and column["value"]
            self.maps += 1
            value = self.read(node["values"], read["values"], inner, kind, optional=False)
            self.maps -= 1
            return key, value
        if not _takes_bytes(node["items"]):
            raise Unsupported("its lists hold what takes no bytes")
        if shape and "entries" in shape:
            sides = zip(("key", "value"), shape["entries"], strict=True)
            shaped = {"struct": [[name, inner, None] for name, inner in sides]}
            kinds = [{"name": name, "type": column and column[name]} for name in ("key", "value")]
            return self.fields(node["items"], read["items"], shaped, struct(*kinds), optional=False)
        inner, kind = shape and shape["list"], column and column["element"]
        return (self.read(node["items"], read["items"], inner, kind, optional=False),)

    def leaf(
        self, node: Json, read: Json, shape: Json | None, column: Json | None, *, optional: bool, null: int
    ) -> Leaf:
        kind, logical = node["type"], read.get("logicalType") if isinstance(read, dict) else None
        if shape and "moment" in shape:
            raise Unsupported("its texts say moments")
        unfit = logical == "decimal" or logical in MILLIS
        in_map = min(self.maps, 1)
        cell, size = self.cell(), int(node.get("size", 0))
        mark = self.mark(needed=optional or (unfit and in_map > 0))
        if logical == "decimal":
            made = self.emit(Op.DECIMAL, cell=cell, mark=mark, null=null, a=size if kind == "fixed" else -1)
            made[B], made[SECOND] = len(self.pool), self.cell()
            least = 10 ** int(read["precision"])
            self.pool += [_signed(least), least >> 64, in_map]
            return Leaf(column, "decimal", cell, mark)
        if unfit:
            self.emit(Op.MILLIS, cell=cell, mark=mark, null=null, a=in_map)
            return Leaf(column, kind, cell, mark)
        if kind == "enum":
            symbols = tuple(node["symbols"])
            self.emit(Op.ENUM, cell=cell, mark=mark, null=null, a=len(symbols))
            return Leaf(column, kind, cell, mark, symbols=symbols)
        if kind == "fixed":
            self.emit(Op.FIXED, cell=cell, mark=mark, null=null, a=size)
            return Leaf(column, kind, cell, mark, size)
        self.emit(NUMBERS.get(kind, Op.BYTES), cell=cell, mark=mark, null=null)
        return Leaf(column, kind if kind in NUMBERS else "bytes", cell, mark)

    def skip(self, written: Json, null: int = -1) -> None:
        """Skip a value without a column. As in Avro's Java, skipping checks less than reading."""
        if isinstance(written, list):
            self.skip_union(written)
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

    def skip_union(self, written: Sequence[Json]) -> None:
        if (null := _null_of_two(written)) is not None:
            self.skip(written[1 - null], null)
            return
        jumps, ends = self.jumps(len(written)), []
        for place, each in enumerate(written):
            self.pool[jumps + place] = self.here
            self.skip(each)
            ends.append(self.emit(Op.JUMP))
        for end in ends:
            end[JUMP_TO] = self.here

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


def _signed(number: int) -> int:
    """The lower 64 bits of a number, as a signed number."""
    low = number & (2**64 - 1)
    return low - 2**64 if low >= 2**63 else low
