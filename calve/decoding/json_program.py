"""Compiles the shape of JSON values to a program of numbers: nodes, which are the parts of a value, and the fields of structs.

`glue_jobs.decode.machines.json_machine` goes from node to node as it parses. Cells, marks and levels are those of
`calve.decoding.avro_program`. The nodes inside a node follow it. Each has a column of marks, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from calve.decoding.avro_operations import (
    CELL,
    SECOND,
    Absent,
    Group,
    Items,
    Leaf,
    Pairs,
    Part,
    Program,
)
from calve.schema.columns import Json, decimal_digits, struct
from calve.schema.writers import JsonWriter


class Kind(IntEnum):
    """A node. `code` stores it with cell, mark, level, first, count, end and second cell, all numbers (`WIDTH`).

    level: of its items; of a struct, the place of its slots in the pool: their number, and a field's number + 1 in each.
    first, count: of a struct's fields. end: the node after those inside it.
    """

    STRUCT = 0
    LIST = 1
    MAP = 2
    """The cell of a key is the second cell."""
    BOOLEAN = 3
    INT = 4
    LONG = 5
    FLOAT = 6
    DOUBLE = 7
    DATABASE_FLOAT = 8
    DATABASE_DOUBLE = 9
    """A number, or a text for one that is not finite."""
    TEXT = 10
    """A text. Texts of dates, timestamps and bytes are converted later."""
    DECIMAL = 11
    """A number or a text, converted later."""
    JSON = 12
    """A value of any form, if no object has a name twice. Its text is written later (`glue_jobs.decode.machines.json_kept`)."""


LEVEL, FIRST, COUNT, END = 3, 4, 5, 6
NODE, FIELD_WIDTH = 4, 5
"""Numbers of a field: where its name is in `names`, its bytes, the first eight of them, their mask, the field's node."""
KINDS = {
    "boolean": (Kind.BOOLEAN, "boolean"), "int": (Kind.INT, "int"), "days": (Kind.INT, "int"), "long": (Kind.LONG, "long"),
    "millis": (Kind.LONG, "long"), "float": (Kind.FLOAT, "float"), "double": (Kind.DOUBLE, "double"),
    "string": (Kind.TEXT, "bytes"), "binary": (Kind.TEXT, "bytes"), "date": (Kind.TEXT, "int"),
    "timestamptz": (Kind.TEXT, "long"), "instant": (Kind.TEXT, "long"), "local_millis": (Kind.LONG, "long"),
    "local_micros": (Kind.LONG, "long"), "database_float": (Kind.DATABASE_FLOAT, "float"),
    "database_double": (Kind.DATABASE_DOUBLE, "double"),
    "json": (Kind.JSON, "bytes"),
}  # fmt: skip
"""Leaf of a shape -> its node and its `Leaf.kind`."""
SPREAD = 0x9E3779B97F4A7C15
UNSIGNED = 2**64


@dataclass(frozen=True, slots=True)
class JsonLeaf:
    """A leaf: its node, its shape, its cell and its level. Its mark is that of the node."""

    node: int
    shape: str
    cell: int
    level: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Fields that a struct does not declare, with their names: the node of a list of them.

    Cells: the number of them, each of them, and their text.
    """

    node: int
    count: int
    item: int
    text: int


@dataclass(frozen=True, slots=True)
class JsonProgram(Program):
    """names: of all fields. maps: the nodes of maps.

    must: the node that every value has. may_be_null: also null.
    kept: what the node `must`, a struct, has beyond its fields; None: this is ignored.
    lenient: as of the writer. members: by node, the name of the property of the node `must` that it begins.
    """

    names: bytes = b""
    leaves: tuple[JsonLeaf, ...] = ()
    maps: tuple[int, ...] = ()
    must: int = 0
    may_be_null: bool = False
    kept: Kept | None = None
    lenient: bool = False
    members: Mapping[int, str] = field(default_factory=dict)


def json_program(writer: JsonWriter, columns: Json) -> JsonProgram:
    """The program that reads a writer's values, after their prefix, into its columns (Iceberg, JSON form)."""
    compiler, shape, table = _Compiler(rest=writer.rest), writer.shape, writer.table
    whole = writer.scalar or writer.whole
    if writer.scalar is not None:
        shape, table = shape["fields"][0]["type"], table["fields"][0]["type"]
    names = {each["name"] for each in table["fields"]} if whole is None else {whole}
    wanted = [each for each in columns["fields"] if each["name"] in names]
    begun = compiler.begin(Kind.STRUCT) if writer.member is not None else None
    part = compiler.read(shape, table, struct(*wanted) if whole is None else wanted[0]["type"])
    if begun is not None and writer.member is not None:
        compiler.end_struct(begun, [(writer.member, 1)])
    row = part if isinstance(part, Group) and whole is None else Group(struct(*wanted), None, (part,))
    return JsonProgram(
        tuple(number for each in compiler.code for number in each),
        tuple(compiler.pool),
        tuple(compiler.cells),
        tuple(compiler.marks),
        len(compiler.lists) + 1,
        compiler.depth,
        row,
        names=bytes(compiler.names),
        leaves=tuple(compiler.leaves),
        lists=tuple((compiler.code[each][CELL], each) for each in compiler.lists),
        maps=tuple(compiler.maps),
        must=0 if begun is None else 1,
        may_be_null=writer.scalar is not None,
        kept=compiler.kept,
        lenient=writer.lenient,
        members=_members(compiler, shape) if writer.lenient else {},
    )


def _members(compiler: _Compiler, shape: Json) -> dict[int, str]:
    first = compiler.code[0][FIRST] + NODE
    nodes = compiler.pool[first : first + FIELD_WIDTH * len(shape["fields"]) : FIELD_WIDTH]
    return dict(zip(nodes, (each["name"] for each in shape["fields"]), strict=True))


@dataclass(slots=True)
class _Compiler:
    """level: the level whose rows are read now. inside: the number of nodes around the current value.

    rest: the column of what the outermost struct has beyond its fields.
    """

    rest: str | None = None
    kept: Kept | None = None
    code: list[list[int]] = field(default_factory=list)
    pool: list[int] = field(default_factory=list)
    names: bytearray = field(default_factory=bytearray)
    cells: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    leaves: list[JsonLeaf] = field(default_factory=list)
    lists: list[int] = field(default_factory=list)
    maps: list[int] = field(default_factory=list)
    level: int = 0
    inside: int = 0
    depth: int = 0

    def begin(self, kind: Kind, *, cell: int = 0) -> list[int]:
        number = len(self.code)
        self.marks.append(self.level)
        self.code.append(made := [int(kind), cell, number, 0, 0, 0, number + 1, 0])
        return made

    def cell(self) -> int:
        self.cells.append(self.level)
        return len(self.cells) - 1

    def read(self, shape: Json, table: Json | None, column: Json | None) -> Part:
        """Read a value of a shape. `table`: its column with names as written. Without a column it is only checked."""
        if isinstance(shape, str):
            return self.leaf(shape, column)
        self.inside += 1
        self.depth = max(self.depth, self.inside)
        part = (
            self.struct(shape, table, column)
            if shape["type"] == "struct"
            else self.collection(shape, table, column)
        )
        self.inside -= 1
        return part

    def struct(self, shape: Json, table: Json | None, column: Json | None) -> Part:
        begun, rest, self.rest = self.begin(Kind.STRUCT), self.rest, None
        written = {each.get("written", each["name"]): each for each in table["fields"]} if table else {}
        wanted = {each["name"]: each["type"] for each in column["fields"]} if column else {}
        found: dict[str, Part] = {}
        fields = []
        for each in shape["fields"]:
            named = written.get(each["name"], {})
            name = named.get("name", "")
            fields.append((each["name"], len(self.code)))
            found[name] = self.read(each["type"], named.get("type"), wanted.get(name))
        if rest is not None:
            found[rest] = self.keep(wanted.get(rest))
        self.end_struct(begun, fields)
        parts = tuple(found.get(name) or Absent(kind) for name, kind in wanted.items())
        return Group(column, begun[2], parts)

    def keep(self, column: Json | None) -> Leaf:
        begun, text = self.begin(Kind.LIST, cell=(count := self.cell())), self.cell()
        self.lists.append(begun[2])
        outer, self.level = self.level, len(self.lists)
        begun[LEVEL] = self.level
        self.begin(Kind.JSON, cell=(item := self.cell()))
        self.level, begun[END] = outer, len(self.code)
        self.kept = Kept(begun[2], count, item, text)
        return Leaf(column, "bytes", text, begun[2])

    def end_struct(self, begun: list[int], fields: Sequence[tuple[str, int]]) -> None:
        """Number the struct's fields, each a name and a node."""
        held = [number for each in fields for number in self.field(*each)]
        begun[FIRST], begun[COUNT], begun[END] = len(self.pool), len(fields), len(self.code)
        self.pool += held
        begun[LEVEL] = len(self.pool)
        self.pool += slots([name.encode() for name, _ in fields])

    def field(self, name: str, node: int) -> tuple[int, ...]:
        text, place = name.encode(), len(self.names)
        self.names += text
        mask = 2 ** (8 * min(len(text), 8)) - 1
        return place, len(text), _signed(int.from_bytes(text[:8], "little")), _signed(mask), node

    def collection(self, shape: Json, table: Json | None, column: Json | None) -> Part:
        is_map = shape["type"] == "map"
        begun = self.begin(Kind.MAP if is_map else Kind.LIST, cell=(cell := self.cell()))
        outer, inner = self.level, "value" if is_map else "element"
        self.lists.append(begun[2])
        self.level = begun[LEVEL] = len(self.lists)
        if is_map:
            self.maps.append(begun[2])
            begun[SECOND] = self.cell()
        item = self.read(shape[inner], table and table[inner], column and column[inner])
        level, self.level = self.level, outer
        begun[END] = len(self.code)
        if not is_map:
            return Items(column, cell, begun[2], level, item)
        key = Leaf("string", "bytes", begun[SECOND], None)
        return Pairs(column, cell, begun[2], level, key, item, listed=False)

    def leaf(self, shape: str, column: Json | None) -> Leaf:
        kind, made = (Kind.DECIMAL, "decimal") if decimal_digits(shape) else KINDS[shape]
        begun = self.begin(kind, cell=(cell := self.cell()))
        if kind is Kind.DECIMAL:
            begun[SECOND] = self.cell()
        self.leaves.append(JsonLeaf(begun[2], shape, cell, self.level))
        return Leaf(column, made, cell, begun[2])


def slots(names: Sequence[bytes]) -> list[int]:
    """The number of slots, and in each 0 or the number of a field + 1: the first free one from that of its name's hash on."""
    size = 2
    while size < 2 * len(names):
        size *= 2
    found = [0] * size
    for number, name in enumerate(names):
        place = slot(name, size)
        while found[place]:
            place = (place + 1) % size
        found[place] = number + 1
    return [size, *found]


def slot(name: bytes, size: int) -> int:
    """Of its first and its last eight bytes; of `size`, a power of two."""
    first = int.from_bytes(name[:8], "little")
    last = int.from_bytes(name[-8:], "little") if len(name) > 8 else 0
    return ((first ^ last * 3 ^ len(name)) * SPREAD % UNSIGNED >> 32) % size


def _signed(number: int) -> int:
    return number - UNSIGNED if number >= UNSIGNED // 2 else number
