"""Conditions over the parts of a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F


def false() -> Column:
    return F.lit(False)  # noqa: FBT003 a literal column


def any_of(conditions: Iterable[Column | None]) -> Column | None:
    """True (else false) where one of them is, null being false; None: there are none. None among them is never true."""
    some = [F.coalesce(each, false()) for each in conditions if each is not None]
    return _either(some) if some else None


def any_in(values: Column, test: Callable[[Column], Column | None]) -> Column | None:
    """True (else false or null) where a test finds an item of a list; None: it cannot."""
    if test(F.lit(None)) is None:
        return None
    return F.exists(values, lambda each: F.coalesce(test(each), false()))  # type: ignore[arg-type]


def _either(conditions: list[Column]) -> Column:
    """All of them with OR, as a tree of small depth: Spark recurses into expressions."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return _either(conditions[:half]) | _either(conditions[half:])
