"""What the columnar machine reads Avro values by (`calve.decoding.avro_program`): operations, and the columns that their cells
make.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto

from calve.schema.columns import Json


class Op(IntEnum):
    """An operation: `code` holds it with its cell, mark, null, jump, a, b and second cell, all of them numbers (`WIDTH`).

    null: the place of null in the union of two types that stands before the value, or -1: it is no union. jump: where to go on
    after null, or as told here.
    """

    BOOLEAN = 0
    INT = auto()
    LONG = auto()
    FLOAT = auto()
    DOUBLE = auto()
    BYTES = auto()
    FIXED = auto()
    """a: size."""
    ENUM = auto()
    """a: number of symbols."""
    MILLIS = auto()
    """Milliseconds that become microseconds. a: 1: of a map's entry."""
    DECIMAL = auto()
    """a: size, -1: as its length says. b: place in the pool of the least number with too many digits (low half, high half) and of
    1 where it is of a map's entry.
    """
    MARK = auto()
    """A struct, which has no bytes of its own."""
    UNION = auto()
    """a: number of types. b: place in the pool of where to go on for each."""
    JUMP = auto()
    LIST = auto()
    """a: level of the items. jump: after its NEXT."""
    NEXT = auto()
    """a: level of the items. jump: to the first operation of an item."""
    SKIP_INT = auto()
    SKIP_LONG = auto()
    SKIP_BYTES = auto()
    SKIP_FIXED = auto()
    """a: size."""
    SKIP_LIST = auto()
    """a: 0: items take no bytes. jump: after its SKIP_NEXT."""
    SKIP_NEXT = auto()
    END = auto()


WIDTH = 8
CELL, MARKED, NULL, JUMP_TO, A, B, SECOND = range(1, WIDTH)
"""Places in an operation, after its `Op`. Cells and marks are numbers of columns; the second cell is a decimal's high half."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without fields. mark: None where it is never null. size: of a fixed. symbols: of an enum.

    kind: boolean, int (also days), long (also microseconds), float and double (their bits), bytes (place in the buffer << 32 |
    length), fixed (likewise), enum (place of the symbol), decimal (`cell` and `cell + 1` are its halves).
    """

    type: Json
    kind: str
    cell: int
    mark: int | None
    size: int = 0
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A struct, its fields in the order of its type."""

    type: Json
    mark: int | None
    fields: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list; the cell is the number of its items."""

    type: Json
    cell: int
    mark: int | None
    level: int
    item: Part


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map; the cell is the number of its entries, of which several may have one key: the last one counts.

    listed: it is written as a list of entries.
    """

    type: Json
    cell: int
    mark: int | None
    level: int
    key: Leaf
    value: Part
    listed: bool


@dataclass(frozen=True, slots=True)
class Absent:
    """A column that is always null."""

    type: Json


Part = Leaf | Group | Items | Pairs | Absent


@dataclass(frozen=True, slots=True)
class Program:
    """cells, marks: the level of each column of them. depth: lists and maps within each other."""

    code: tuple[int, ...]
    pool: tuple[int, ...]
    cells: tuple[int, ...]
    marks: tuple[int, ...]
    levels: int
    depth: int
    row: Group
