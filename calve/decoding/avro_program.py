"""Compiles an Avro schema to a program of numbers, which a machine executes to decode values into cells of columns.

A new schema needs no compilation of code: `glue_jobs.decode.machines.avro_machine` is one loop that runs any program over many
records. Records are the rows of level 0. Each list and each map opens a level whose rows are its items.
A level has columns of cells (64-bit numbers) and of marks (bytes; 1 means there is a value). `Program.row` defines the
meaning of the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from calve.decoding.avro_operations import (
    JUMP_TO,
    SECOND,
    WIDTH,
    Absent,
    B,
    Group,
    Items,
    Leaf,
    Moment,
    Op,
    Pairs,
    Part,
    Program,
)
from calve.schema.avro_reader import Value

NUMBERS = {"boolean": Op.BOOLEAN, "int": Op.INT, "long": Op.LONG, "float": Op.FLOAT, "double": Op.DOUBLE}
SKIPPED = {
    "boolean": (Op.SKIP_FIXED, 1), "int": (Op.SKIP_INT, 0), "enum": (Op.SKIP_INT, 0), "long": (Op.SKIP_LONG, 0),
    "float": (Op.SKIP_FIXED, 4), "double": (Op.SKIP_FIXED, 8), "bytes": (Op.SKIP_BYTES, 0), "string": (Op.SKIP_BYTES, 0),
}  # fmt: skip


def program(value: Value) -> Program:
    """The program that reads values into the columns of `value`."""
    compiler = _Compiler()
    row = Group(value.column, None, compiler.fields(value))
    compiler.emit(Op.END)
    return Program(
        tuple(number for each in compiler.code for number in each),
        tuple(compiler.pool),
        tuple(compiler.cells),
        tuple(compiler.marks),
        len(compiler.lists) + 1,
        compiler.depth,
        row,
        tuple(compiler.lists),
        tuple(compiler.moments),
        tuple(compiler.millis),
    )


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
    lists: list[tuple[int, int | None]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    millis: list[int] = field(default_factory=list)
    unmarked: dict[int, int] = field(default_factory=dict)
    level: int = 0
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

    def fields(self, of: Value, *, optional: bool = False) -> tuple[Part, ...]:
        """Read the column's fields, in its order."""
        wanted = {each["name"]: each["type"] for each in of.column["fields"]} if of.column else {}
        found: dict[str | None, Part] = {}
        for name, part in of.parts:
            if part.skipped:
                self.skip(part)
            else:
                found[name] = self.read(part, optional=optional)
        return tuple(found.get(name) or Absent(kind) for name, kind in wanted.items())

    def read(self, of: Value, *, optional: bool = False, null: int = -1) -> Part:
        """optional: some rows lack the value. null: the place of null in a union with one other type, or -1."""
        if of.kind == "union":
            if (place := _null_of_two(of)) is None:
                return self.union(of, optional=optional)
            return self.read(of.parts[1 - place][1], optional=True, null=place)
        if of.kind == "record":
            mark = self.mark() if optional else None
            marked = self.emit(Op.MARK, mark=mark, null=null) if optional else None
            fields = self.fields(of, optional=optional)
            if marked:
                marked[JUMP_TO] = self.here
            return Group(of.column, mark, fields)
        if of.kind in ("array", "map", "entries"):
            return self.collection(of, optional=optional, null=null)
        return self.leaf(of, optional=optional, null=null)

    def union(self, of: Value, *, optional: bool) -> Part:
        others = sum(part.kind != "null" for _, part in of.parts)
        several = others > 1
        mark = self.mark() if several and (optional or others < len(of.parts)) else None
        found: dict[str | None, Part] = {}

        def branch(name: str | None, part: Value) -> None:
            if part.kind == "null":
                return
            if mark is not None:
                self.emit(Op.MARK, mark=mark)
            found[name] = self.read(part, optional=optional or several)

        self.branches(of.parts, branch)
        if not several:
            return found[None]
        wanted = of.column["fields"] if of.column else ()
        parts = tuple(found.get(each["name"]) or Absent(each["type"]) for each in wanted)
        return Group(of.column, mark, parts)

    def branches(
        self, parts: Sequence[tuple[str | None, Value]], branch: Callable[[str | None, Value], None]
    ) -> None:
        """A union's operation, and those of each of its types. The pool has the place where each type begins."""
        jumps, ends = len(self.pool), []
        self.emit(Op.UNION, a=len(parts))[B] = jumps
        self.pool += [0] * len(parts)
        for place, (name, part) in enumerate(parts):
            self.pool[jumps + place] = self.here
            branch(name, part)
            ends.append(self.emit(Op.JUMP))
        for end in ends:
            end[JUMP_TO] = self.here

    def collection(self, of: Value, *, optional: bool, null: int) -> Part:
        cell, mark, outer = self.cell(), self.mark() if optional else None, self.level
        self.lists.append((cell, mark))
        level = len(self.lists)
        begun = self.emit(Op.LIST, cell=cell, mark=mark, null=null, a=level)
        self.level, self.inside = level, self.inside + 1
        self.depth = max(self.depth, self.inside)
        body = self.here
        parts = self.item(of)
        self.emit(Op.NEXT, a=level)[JUMP_TO] = body
        begun[JUMP_TO] = self.here
        self.level, self.inside = outer, self.inside - 1
        if len(parts) == 1:
            return Items(of.column, cell, mark, level, parts[0])
        key, value = parts
        assert isinstance(key, Leaf)  # noqa: S101 with other keys it is no map (`is_map`)
        return Pairs(of.column, cell, mark, level, key, value, listed=of.kind == "entries")

    def item(self, of: Value) -> tuple[Part, ...]:
        """Read an item of a list, or key and value of a map entry."""
        if of.kind == "map":
            key = self.leaf(Value("string", "string"))
            self.maps += 1
            value = self.read(of.inner)
            self.maps -= 1
            return key, value
        return self.fields(of.inner) if of.kind == "entries" else (self.read(of.inner),)

    def leaf(self, of: Value, *, optional: bool = False, null: int = -1) -> Leaf:
        kind, column, in_map = of.kind, of.column, min(self.maps, 1)
        unfit = of.conversion in ("decimal", "millis", "moment")
        cell = self.cell()
        mark = self.mark() if optional or (unfit and in_map > 0) else None
        if of.conversion == "decimal":
            made = self.emit(
                Op.DECIMAL, cell=cell, mark=mark, null=null, a=of.size if kind == "fixed" else -1
            )
            made[B], made[SECOND] = len(self.pool), self.cell()
            high, low = divmod(10 ** of.digits[0], 2**64)
            self.pool += [low - 2**64 if low >= 2**63 else low, high, in_map]
            return Leaf(column, "decimal", cell, mark)
        if of.conversion == "moment":
            self.moments.append(Moment(cell, mark, self.level, in_map > 0))
            self.emit(Op.BYTES, cell=cell, mark=mark, null=null)
            return Leaf(column, "long", cell, mark)
        if of.conversion == "database_millis":
            self.millis.append(cell)
        if of.conversion == "millis":
            op, a = Op.MILLIS, in_map
        elif kind == "enum":
            op, a = Op.ENUM, len(of.symbols)
        elif kind == "fixed":
            op, a = Op.FIXED, of.size
        else:
            op, a = NUMBERS.get(kind, Op.BYTES), 0
            kind = kind if kind in NUMBERS else "bytes"
        self.emit(op, cell=cell, mark=mark, null=null, a=a)
        return Leaf(column, kind, cell, mark, of.size, of.symbols)

    def skip(self, of: Value, null: int = -1) -> None:
        """Skip a value. As in Avro's Java, skipping checks less than reading."""
        match of.kind:
            case "union":
                if (place := _null_of_two(of)) is not None:
                    self.skip(of.parts[1 - place][1], place)
                else:
                    self.branches(of.parts, lambda _, part: self.skip(part))
            case "null":
                pass
            case "record":
                begun = self.emit(Op.MARK, null=null)
                for _, part in of.parts:
                    self.skip(part)
                begun[JUMP_TO] = self.here
            case "array" | "map":
                self.skip_collection(of, null)
            case "fixed":
                self.emit(Op.SKIP_FIXED, null=null, a=of.size)
            case kind:
                op, size = SKIPPED[kind]
                self.emit(op, null=null, a=size)

    def skip_collection(self, of: Value, null: int) -> None:
        begun = self.emit(Op.SKIP_LIST, null=null)
        self.inside += 1
        self.depth = max(self.depth, self.inside)
        body = self.here
        if of.kind == "map":
            self.skip(Value("string"))
        self.skip(of.inner)
        self.emit(Op.SKIP_NEXT)[JUMP_TO] = body
        self.inside -= 1
        begun[JUMP_TO] = self.here


def _null_of_two(union: Value) -> int | None:
    """The place of null in a union with one other type; None for other unions."""
    nulls = [place for place, (_, part) in enumerate(union.parts) if part.kind == "null"]
    return nulls[0] if len(union.parts) == 2 and len(nulls) == 1 else None
