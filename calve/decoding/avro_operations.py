"""The operations by which the columnar machine reads Avro values (`calve.decoding.avro_program`), and the resulting columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto

from calve.schema.columns import Json


class Op(IntEnum):
    """An operation. `code` stores it with cell, mark, null, jump, a, b and second cell, all numbers (`WIDTH`).

    null: the place of null in a union with one other type, or -1 without a union.
    jump: where to continue after null, unless stated otherwise below.
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
    """Milliseconds that become microseconds. a: 1 in a map entry."""
    DECIMAL = auto()
    """a: size; -1 if a length precedes it. b: place in the pool of the least number with too many digits (low half, high half).

    The number after it in the pool is 1 in a map entry.
    """
    MARK = auto()
    """A struct, which has no bytes of its own."""
    UNION = auto()
    """a: number of types. b: place in the pool of each type's next operation."""
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
    """jump: after its SKIP_NEXT."""
    SKIP_NEXT = auto()
    END = auto()


STRING_LIMIT = 16_777_216
"""The most bytes of a string, of bytes and of a decimal."""
ITEMS_LIMIT = 1_000_000
"""The most items of a list or map. A record of nine bytes may claim more than there is memory."""
WIDTH = 8
CELL, MARKED, NULL, JUMP_TO, A, B, SECOND = range(1, WIDTH)
"""Places in an operation, after its `Op`. Cells and marks are column numbers; the second cell is a decimal's high half."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without fields. mark: None if it is never null. size: of a fixed. symbols: of an enum.

    kind: boolean, int (also days), long (also microseconds), float and double (their bits), bytes (place in the buffer << 32
    | length),
    fixed (as bytes), enum (index of the symbol), decimal (`cell` and `cell + 1` are its halves).
    """

    type: Json
    kind: str
    cell: int
    mark: int | None
    size: int = 0
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A struct, with its fields in the order of its type."""

    type: Json
    mark: int | None
    fields: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list; the cell is its number of items."""

    type: Json
    cell: int
    mark: int | None
    level: int
    item: Part


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map; the cell is its number of entries. If several have one key, the last one wins.

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
class Moment:
    """A leaf whose text is converted after the machine to a timestamp."""

    cell: int
    mark: int | None
    level: int
    in_map: bool


@dataclass(frozen=True, slots=True)
class Program:
    """cells, marks: the level of each column. depth: the nesting of lists and maps.

    lists: for each level but the first, the cell and the mark of its lists.
    millis: the cells of milliseconds that are converted after the machine.
    """

    code: tuple[int, ...]
    pool: tuple[int, ...]
    cells: tuple[int, ...]
    marks: tuple[int, ...]
    levels: int
    depth: int
    row: Group
    lists: tuple[tuple[int, int | None], ...] = ()
    moments: tuple[Moment, ...] = ()
    millis: tuple[int, ...] = ()
