"""Random expressions of Spark SQL that the columnar engine computes, and records with edges of every type."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

DDL = (
    "a int, b int, l long, m long, d double, e double, f float, s string, t string, x binary, k decimal(10, 2),"
    " q decimal(12, 3), day date, at timestamp, ok boolean, o struct<n: int, s: string, d: double>, p map<string, int>"
)
NAN, INFINITE = float("nan"), float("inf")
INTS = (0, 1, -1, 2, 7, 2**31 - 1, -(2**31), 46341)
LONGS = (*INTS, 2**63 - 1, -(2**63), 2**53 + 1, 3_037_000_500, 1_782_864_000_000)
DOUBLES = (0.0, -0.0, 1.0, -1.5, NAN, INFINITE, -INFINITE, 1e300, 5e-324, 0.1)
FLOATS = (0.0, -0.0, 1.0, NAN, INFINITE, 0.5, 16777216.0)
TEXTS = ("", "a", "ab", "b", "A", "ä", "a%", "1", "\U0001d11e", "z" * 20)
BLOBS = (b"", b"\x00", b"\xff", b"ab")
CENTS = tuple(map(Decimal, ("0.00", "1.00", "-1.50", "99999999.99", "-99999999.99", "0.01")))
MILLS = tuple(map(Decimal, ("0.000", "1.000", "-1.500", "999999999.999", "0.001")))
DAYS = (date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2026, 2, 28))
MOMENTS = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 7, 1, tzinfo=UTC),
)
POOLS: tuple[tuple[Any, ...], ...] = (
    INTS, INTS, LONGS, LONGS, DOUBLES, DOUBLES, FLOATS, TEXTS, TEXTS, BLOBS, CENTS, MILLS, DAYS, MOMENTS, (True, False),
)  # fmt: skip


def values(chance: random.Random) -> tuple[Any, ...]:
    """Those of one record."""
    plain = [_one(chance, pool) for pool in POOLS]
    inner = None
    if chance.random() < 0.9:
        inner = (_one(chance, INTS), _one(chance, TEXTS), _one(chance, DOUBLES))
    pairs = None if chance.random() < 0.1 else {t: _one(chance, INTS) for t in chance.sample(TEXTS, 2)}
    return (*plain, inner, pairs)


def _one(chance: random.Random, pool: tuple[Any, ...]) -> Any:
    return None if chance.random() < 0.15 else chance.choice(pool)


COLUMNS = {
    "int": ("a", "b", "o.n"),
    "long": ("l", "m", "_kafka.offset"),
    "double": ("d", "e", "O.D"),
    "float": ("f",),
    "string": ("s", "T", "o.s"),
    "binary": ("x",),
    "decimal": ("k", "q"),
    "date": ("day",),
    "timestamp": ("at", "_kafka.timestamp"),
    "boolean": ("ok",),
}
LITERALS = {
    "int": ("0", "1", "-1", "2147483647"),
    "long": ("0L", "3000000000L", "-9223372036854775808L"),
    "double": ("0.0D", "1D", "-1.5D", "double('NaN')"),
    "float": ("float(1)", "float('NaN')"),
    "string": ("''", "'a'", "'ab'", "'ä'"),
    "binary": ("x''", "x'ff'"),
    "decimal": ("1", "-1.50", "0.001"),
    "date": ("date'2026-02-28'", "date'1970-01-01'"),
    "timestamp": ("timestamp'2026-07-01'", "timestamp'1969-12-31 23:59:59.999999'"),
    "boolean": ("ok",),
}
NUMBERS = ("int", "long", "double", "float", "decimal")


class Expressions:
    """Random expressions, none of which can fail unless it says so."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def value(self, kind: str, depth: int = 2) -> str:
        """An expression of a type."""
        if depth == 0 or self._chance.random() < 0.4:
            return self._chance.choice((*COLUMNS[kind], *COLUMNS[kind], *LITERALS[kind]))
        one, other = self.value(kind, depth - 1), self.value(kind, depth - 1)
        ways = [
            f"coalesce({one}, {other})",
            f"nvl({one}, {other})",
            f"if({self.condition(depth - 1)}, {one}, {other})",
            f"case when {self.condition(depth - 1)} then {one} when {self.condition(depth - 1)} then {other} end",
            f"nullif({one}, {other})",
        ]
        match kind:
            case "string":
                number = self.value("int", depth - 1)
                ways += [f"{one} || {other}", f"cast({number} as string)", "cast(day as string)"]
                ways += ["cast(ok as string)"]
            case "double" | "float":
                ways += [f"{one} {sign} {other}" for sign in "+-*"]
            case "decimal":
                ways = ["k + 1", "k * q", "k - q", "cast(a as decimal(12, 2))", "cast(k as decimal(14, 3))"]
            case "date":
                ways += ["cast(at as date)", "to_date(at)"]
            case "int":
                ways += ["p['a']", f"try_add({one}, {other})", f"try_multiply({one}, b)"]
            case "long":
                ways += [f"try_subtract({one}, l)", "try_multiply(l, m)"]
                ways += [f"cast({self.value('int', depth - 1)} as long)"]
        if kind == "double":
            ways += [f"try_divide({one}, {other})", "try_divide(l, m)"]
            ways += [f"cast({self.value(each, depth - 1)} as double)" for each in ("int", "long", "float")]
        return self._chance.choice(ways)

    def condition(self, depth: int = 2) -> str:
        if depth == 0 or self._chance.random() < 0.5:
            return self._test(depth)
        one, other = self.condition(depth - 1), self.condition(depth - 1)
        return self._chance.choice(
            (f"({one} and {other})", f"({one} or {other})", f"not ({one})", f"({one}) is null")
        )

    def _test(self, depth: int) -> str:
        kind = self._chance.choice(list(COLUMNS))
        down = max(depth - 1, 0)
        one, other = self.value(kind, down), self.value(kind, down)
        if kind in NUMBERS and self._chance.random() < 0.4:
            beside = ("int", "long") if kind == "decimal" else ("int", "long", "double", "float")
            other = self.value(self._chance.choice(beside), 0)
        sign = self._chance.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
        ways = [
            f"{one} {sign} {other}",
            f"{one} {sign} {other}",
            f"{one} is null",
            f"{one} is not null",
            f"{one} between {other} and {one}",
        ]
        if kind not in ("double", "float", "decimal", "boolean"):
            listed = self._chance.sample(LITERALS[kind], 2)
            ways += [f"{one} in ({', '.join(listed)})", f"{one} not in ({', '.join([*listed, 'null'])})"]
        if kind == "string":
            ways += [f"{one} like '{pattern}'" for pattern in ("a%", "%b", "%a%", "ab", "%", "")]
            ways += [f"startswith({one}, 'a')", f"contains({one}, 'b')", f"endswith({one}, '')"]
        return self._chance.choice(ways)

    def failing(self) -> str:
        """An expression that some records have no value of."""
        kind = self._chance.choice(("int", "long"))
        one, other = self.value(kind, 0), self._chance.choice(COLUMNS[kind])
        double, whole = self._chance.choice(COLUMNS["double"]), self._chance.choice(COLUMNS["int"])
        sign = self._chance.choice(("+", "-", "*", "%", "div"))
        ways = [
            f"{one} {sign} {other}",
            f"{other} {sign} ({one} - {other})",
            f"{self.value('double', 0)} / {double}",
            f"({other} + {one}) / {whole}",
            "timestamp_millis(l)",
            "timestamp_seconds(m)",
            f"cast({other} * {one} as double)",
        ]
        return self._chance.choice(ways)

    def failing_condition(self) -> str:
        number = self._chance.choice(("a + b", "l * m", "l - m", "a * o.n", "d / e", "a % b", "l + 1L"))
        one, other = f"{number} > {self._chance.choice(('a', 'd', '7'))}", self.condition(1)
        first, second = self._chance.sample((one, other), 2)
        return self._chance.choice((one, f"{first} and {second}", f"{first} or {second}", f"not ({one})"))
