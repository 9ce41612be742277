"""Compiles the plan of a message to numbers, which `machine.run` executes, and to groups, which `layout` makes columns of.

Records are the rows of level 0. Each repeated field opens a level, whose rows are its items. A message that is not repeated
shares the level of the message around it. A level has columns of cells (64-bit numbers) and of marks (bytes; 1: it was
written).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, auto

from calve.schema.protobuf.columns import Read, Struct, Value
from glue_jobs.decode.protobuf import values


class Kind(IntEnum):
    """What becomes of a field's content."""

    NUMBER = 0
    BYTES = auto()
    TEXT = auto()
    MESSAGE = auto()
    SKIPPED = auto()
    """It has no column."""


WIDTH = 17
(
    KIND, OWN, ALSO, CELL, MARK, LEVEL, COUNT, LISTED, FIRST, FIELDS, UNFIT, HOLDER, HELD, MARKS_FROM, MARKS_END,
    LEVELS_FROM, LEVELS_END,
) = range(WIDTH)  # fmt: skip
"""Places in the numbers of a field, -1 where there is none.

OWN, ALSO: the wire types that it may have. LEVEL: of the items. COUNT, LISTED: the cell of their number, and its mark.
Of a message, FIRST and FIELDS: the place of its first field, and their number; UNFIT: the mark that a field has another wire
type.
Of a member of a oneof, HOLDER, HELD: the cell of the member that was written last, and its mark; then the columns of marks and
the levels inside of it.
"""
CELL_COLUMNS, MARK_COLUMNS = [CELL, COUNT, HOLDER], [MARK, LISTED, UNFIT, HELD]


@dataclass(frozen=True, slots=True)
class Part:
    """A field with a column. level: of its values; listed: the mark of `count`, the number of its items."""

    read: Read
    level: int
    cell: int
    mark: int
    count: int
    listed: int
    group: Group | None


@dataclass(frozen=True, slots=True)
class Group:
    """A message. fields: as in its plan; None: no column. unfit: the mark that a field had another wire type."""

    plan: Struct
    unfit: int
    fields: tuple[Part | None, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """nodes: the numbers of each field (`WIDTH`), the root first. fields: of each message, by number: number and
    node of each field.

    levels: of each level the one above, and the cell and mark of the number of items. cells, marks: the level of each column.
    depth: of messages.
    """

    nodes: tuple[tuple[int, ...], ...]
    fields: tuple[tuple[int, int], ...]
    levels: tuple[tuple[int, int, int], ...]
    cells: tuple[int, ...]
    marks: tuple[int, ...]
    depth: int
    root: Group


def program(plan: Struct) -> Program:
    compiler = _Compiler()
    root = compiler.group(compiler.node(), plan, 0, 1)
    nodes = tuple(map(tuple, compiler.nodes))
    fields, levels = tuple(compiler.fields), tuple(compiler.levels)
    return Program(nodes, fields, levels, tuple(compiler.cells), tuple(compiler.marks), compiler.depth, root)


@dataclass(slots=True)
class _Compiler:
    """Columns and levels inside of a field follow each other."""

    nodes: list[list[int]] = field(default_factory=list)
    fields: list[tuple[int, int]] = field(default_factory=list)
    levels: list[tuple[int, int, int]] = field(default_factory=lambda: [(-1, -1, -1)])
    cells: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    depth: int = 0

    def node(self) -> int:
        self.nodes.append([-1] * WIDTH)
        return len(self.nodes) - 1

    def cell(self, level: int) -> int:
        self.cells.append(level)
        return len(self.cells) - 1

    def mark(self, level: int) -> int:
        self.marks.append(level)
        return len(self.marks) - 1

    def group(self, node: int, plan: Struct, level: int, depth: int) -> Group:
        """The message of a node, in rows of a level."""
        self.depth = max(self.depth, depth)
        unfit = self.mark(level)
        holders = {each: (self.cell(level), self.mark(level)) for each in plan.oneofs}
        shown, made, parts = plan.shown, list[tuple[int, int]](), list[Part | None]()
        for place, read in enumerate(plan.fields):
            child = self.node()
            made.append((read.number, child))
            if place in shown:
                parts.append(self.part(child, read, level, depth))
            else:
                parts.append(None)
                self.skip(child, read)
            for members, (holder, held) in holders.items():
                if place in members:
                    self.nodes[child][HOLDER], self.nodes[child][HELD] = holder, held
        numbers = self.nodes[node]
        numbers[FIRST], numbers[FIELDS], numbers[UNFIT] = len(self.fields), len(made), unfit
        self.fields += sorted(made)
        return Group(plan, unfit, tuple(parts))

    def part(self, node: int, read: Read, level: int, depth: int) -> Part:
        numbers, value = self.nodes[node], read.value
        _wires(numbers, read)
        numbers[MARKS_FROM], numbers[LEVELS_FROM] = len(self.marks), len(self.levels)
        if read.repeated:
            numbers[COUNT], numbers[LISTED] = self.cell(level), self.mark(level)
            self.levels.append((level, numbers[COUNT], numbers[LISTED]))
            level = numbers[LEVEL] = len(self.levels) - 1
        else:
            numbers[MARK] = self.mark(level)
        inside, group = _inside(read.key, value), None
        if inside is not None:
            numbers[KIND] = Kind.MESSAGE
            group = self.group(node, inside, level, depth + 1)
        else:
            numbers[KIND] = {"string": Kind.TEXT, "bytes": Kind.BYTES}.get(value.kind, Kind.NUMBER)
            numbers[CELL] = self.cell(level)
        numbers[MARKS_END], numbers[LEVELS_END] = len(self.marks), len(self.levels)
        return Part(read, level, numbers[CELL], numbers[MARK], numbers[COUNT], numbers[LISTED], group)

    def skip(self, node: int, read: Read) -> None:
        numbers = self.nodes[node]
        _wires(numbers, read)
        numbers[KIND] = Kind.SKIPPED
        numbers[MARKS_FROM] = numbers[MARKS_END] = numbers[LEVELS_FROM] = numbers[LEVELS_END] = 0


def _wires(numbers: list[int], read: Read) -> None:
    own = values.LENGTH if read.key else values.WIRES.get(read.value.kind, values.LENGTH)
    numbers[OWN], numbers[ALSO] = own, values.LENGTH if read.repeated else own


def _inside(key: Value | None, value: Value) -> Struct | None:
    """The message that the field is on the wire, if it is one."""
    if key is not None:
        return values.entry(key, value)
    if value.kind in values.WIRES or value.kind in ("string", "bytes"):
        return None
    return value.message or values.members(value)
