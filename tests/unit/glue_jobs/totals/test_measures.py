"""Expressions of measures on Arrow columns, against Python's own numbers, which know no limit."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from calve.errors import Suspended
from calve.modes.measures import Arithmetic, Cast, ColumnAt, Expression, Number, typed
from calve.schema.columns import decimal_digits, field
from calve.schema.columns import struct as columns
from cli.verify.keyed.aggregate import measure, same
from glue_jobs.columns.arrow_types import leaf_type
from glue_jobs.totals.measures import is_lost, value

RECORD = columns(
    field("i", "int"),
    field("l", "long"),
    field("d", "decimal(12, 4)"),
    field("x", "double"),
    field("f", "float"),
    field("s", columns(field("w", "decimal(30, 0)"))),
)
TYPES = {"i": "int", "l": "long", "d": "decimal(12, 4)", "x": "double", "f": "float", "s.w": "decimal(30, 0)"}
CASTS = (
    "decimal(18, 4)",
    "decimal(9, 0)",
    "decimal(15, 10)",
    "decimal(18, 18)",
    "decimal(38, 10)",
    "decimal(38, 38)",
    "decimal(38, 0)",
    "decimal(38, 4)",
)


def some(dice: random.Random, depth: int) -> Expression:
    if depth and dice.random() < 0.15:
        return Cast(some(dice, depth - 1), dice.choice(CASTS))
    if depth and dice.random() < 0.7:
        return Arithmetic(dice.choice("+-*"), some(dice, depth - 1), some(dice, depth - 1))
    if dice.random() < 0.2:
        return Number(dice.choice(["0", "3", "100", "0.5", "12.345"]))
    plain = ColumnAt(dice.choice(["i", "l", "d", "x", "f", "s.w"]))
    return Cast(plain, dice.choice(CASTS)) if plain.path in "xf" or dice.random() < 0.4 else plain


def usable(dice: random.Random, count: int) -> list[Expression]:
    found: list[Expression] = []
    while len(found) < count:
        each = some(dice, 3)
        try:
            typed(each, RECORD)
        except Suspended:
            continue
        found.append(each)
    return found


def record(dice: random.Random) -> dict[str, Any]:
    bits, digits = dice.choice([3, 31, 63]), dice.choice([2, 12])
    sign = dice.choice([-1, 1])
    single: float = struct.unpack("f", struct.pack("f", dice.uniform(-1e6, 1e6)))[0]
    made = {
        "i": sign * dice.getrandbits(min(bits, 31)),
        "l": sign * dice.getrandbits(bits),
        "d": Decimal(sign * dice.randrange(10**digits)) / 10_000,
        "x": dice.choice(
            [sign * dice.random() * 10 ** dice.randrange(-6, 20), sign * 0.5, 1.005, float("nan")]
        ),
        "f": single,
        "w": sign * Decimal(dice.randrange(10 ** dice.choice([1, 30]))),
    }
    return {name: None if dice.random() < 0.05 else each for name, each in made.items()}


def parts(tree: Expression) -> list[Expression]:
    match tree:
        case Cast(of):
            return [tree, *parts(of)]
        case Arithmetic(_, left, right):
            return [tree, *parts(left), *parts(right)]
    return [tree]


def fits(tree: Expression, given: dict[str, Any]) -> bool:
    """Whether the value of an expression, as Python computes it, is one of its type."""
    found, kind = measure("m", f"sum({tree})").value(given), typed(tree, RECORD).kind
    if found is None or kind in ("double", "float"):
        return True
    if found.is_nan():
        return False
    digits = decimal_digits(kind)
    if digits is None:
        return bool(-(2**63) <= found < 2**63)
    return bool(abs(found) < Decimal(10) ** (digits[0] - digits[1]))


def arrow(records: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {
        path: pa.array([each[path.rpartition(".")[2]] for each in records], leaf_type(kind))
        for path, kind in TYPES.items()
    }


def test_a_value_is_the_one_that_python_computes_or_lost() -> None:
    dice = random.Random(33)
    trees = usable(dice, 240)
    records = [record(dice) for _ in range(60)]
    columns = arrow(records)
    seen = set()
    for tree in trees:
        made = typed(tree, RECORD)
        found = value(made, columns, len(records))
        assert found.type == leaf_type(made.kind), tree
        lost = is_lost(made, columns, found).to_pylist()
        for given, one, is_gone in zip(records, found.to_pylist(), lost, strict=True):
            plain = {**given, "s.w": given["w"]}
            wanted = measure("m", f"sum({tree})").value(plain)
            exact = wanted is None or all(fits(each, plain) for each in parts(tree))
            assert is_gone == (not exact), tree
            assert same(one, wanted if exact else None), tree
            seen.add((exact, wanted is None))
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("path", "kind", "largest", "beyond"),
    [
        ("d", "decimal(9, 1)", "99999999.9499", "99999999.9500"),
        ("d", "decimal(11, 4)", "9999999.9999", "10000000.0000"),
        ("x", "decimal(2, 0)", "99.4", "99.5"),
    ],
)
def test_a_value_that_is_rounded_up_may_have_a_digit_too_many(
    path: str, kind: str, largest: str, beyond: str
) -> None:
    made = typed(Cast(ColumnAt(path), kind), RECORD)
    given = [float(each) if path == "x" else Decimal(each) for each in (largest, beyond)]
    columns = {path: pa.array(given, leaf_type(TYPES[path]))}
    found = value(made, columns, 2)
    assert found.is_valid().to_pylist() == [True, False]
    assert is_lost(made, columns, found).to_pylist() == [False, True]
