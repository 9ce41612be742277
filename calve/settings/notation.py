"""Single values of calve.yaml: each function returns the parsed one, or raises `Invalid` with reason and fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, get_args

from calve.config.job import Start
from calve.config.publishing import Function
from calve.names import SYSTEM_COLUMN, field_problem
from calve.schema.columns import KAFKA, Transform
from calve.settings.problems import Invalid, InvalidParts, Problem, near_miss, one_of

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = (
    {"B": 1}
    | {p + "B": 1000**n for n, p in enumerate("kMGT", 1)}
    | {p + "iB": 1024**n for n, p in enumerate("KMGT", 1)}
)
TIME_TRANSFORMS = ("year", "month", "day", "hour")
COUNTED_TRANSFORMS = ("bucket", "truncate")
TRANSFORMS = (*TIME_TRANSFORMS, *COUNTED_TRANSFORMS, "identity")
STARTS = ("earliest", "latest")
FUNCTIONS: tuple[Function, ...] = get_args(Function)

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+|%)")
_CALL = re.compile(r"([A-Za-z_]+)\s*\(\s*([^()]*?)\s*\)")
_MAX_ARGUMENT = 2**31 - 1
_T = TypeVar("_T")


def seconds(raw: Any) -> float:
    """`60s`, `5m`, `1h` in seconds."""
    value = _quantity(raw, SECONDS, 'write a number and ms, s, m, h or d, such as "60s"', what="duration")
    if value <= 0:
        raise Invalid(f'"{raw}" is not a duration: it must be more than zero')
    return value


def milliseconds(raw: Any) -> int:
    return round(seconds(raw) * 1000)


def size_bytes(raw: Any) -> int:
    """`250MB` (10^6) or `64MiB` (2^20) in bytes."""
    value = round(_quantity(raw, BYTES, 'write a number and a unit, such as "250MB" or "64MiB"', what="size"))
    if value < 1:
        raise Invalid(f'"{raw}" is not a size: it must be at least one byte')
    return value


def share(raw: Any) -> float:
    """`1%`, `0.5%` as a part of one."""
    percent = _quantity(raw, {"%": 1.0}, 'write it as a percentage, such as "1%"', what="share")
    if percent > 100:
        raise Invalid(f'"{raw}" is more than all', "use 100% or less")
    return percent / 100


def partition_field(raw: Any) -> Transform:
    """`day(created_at)`, `bucket(16, userid)`, `symbol`."""
    return _transform(
        raw, 'write a column or a transform of one, such as "day(created_at)" or "bucket(16, userid)"'
    )


def sort_field(raw: Any) -> Transform:
    """`price desc`, `symbol`, `bucket(16, userid) asc`."""
    example = 'write a column and "asc" or "desc", such as "price desc"'
    text = _text(raw, example)
    expression, _, direction = text.rpartition(" ")
    if not expression or text.endswith(")"):
        return _transform(text, example)
    if direction.lower() not in {"asc", "desc"}:
        raise Invalid(
            f'"{direction}" is not a sort direction', near_miss(direction, ("asc", "desc")) or example
        )
    return replace(_transform(expression, example), descending=direction.lower() == "desc")


def distinct(values: list[_T], identity: Callable[[_T], object], reason: str) -> list[_T]:
    """Refuse a value that is listed twice. reason: `{value}`, and `{place}` of the first one."""
    first: dict[object, int] = {}
    problems = []
    for index, value in enumerate(values):
        place = first.setdefault(identity(value), index)
        if place != index:
            text = reason.format(value=value, place=place)
            problems.append(Problem((str(index),), text, "remove one of the two"))
    if problems:
        raise InvalidParts(problems)
    return values


def column(raw: Any) -> str:
    """`price`, `order.created_at`, `_kafka.timestamp`."""
    example = 'write the name of a column, such as "price" or "order.created_at"'
    return _column(_text(raw, example), example)


def start(raw: Any) -> Start:
    """`earliest`, `latest`, `{timestamp: 2026-01-01T00:00:00Z}`, `{offsets: {0: 12}}`."""
    example = "use earliest, latest, {timestamp: 2026-01-01T00:00:00Z} or {offsets: {0: 12}}"
    match raw:
        case "earliest" | "latest":
            return Start(raw)
        case str():
            raise Invalid(f'"{raw}" is not a starting point', near_miss(raw, STARTS) or example)
        case {"timestamp": text} if len(raw) == 1:
            return Start("timestamp", timestamp_ms=_timestamp_ms(text))
        case {"offsets": dict() as offsets} if len(raw) == 1 and offsets:
            return Start("offsets", offsets=_offsets(offsets))
    raise Invalid("is not a starting point", example)


def measure(raw: Any) -> tuple[Function, str | None]:
    """`count`, `sum(quantity)`: a function, and its column."""
    example = "write count, count(column), sum(column), min(column) or max(column)"
    text = _text(raw, example)
    call = _CALL.fullmatch(text)
    word, inner = call.groups() if call else (text, "")
    if word not in FUNCTIONS:
        raise Invalid(f'"{raw}" is not a measure', near_miss(word, FUNCTIONS) or example)
    if not inner and word != "count":
        raise Invalid(f'"{raw}" names no column', f'write "{word}(column)"')
    return word, _column(inner, example) if inner else None


def _quantity(raw: Any, units: Mapping[str, float], example: str, *, what: str) -> float:
    if not isinstance(raw, str | int | float) or isinstance(raw, bool):
        raise Invalid("must be text", example)
    written = str(raw)
    match = _QUANTITY.fullmatch(written.strip())
    if not match:
        raise Invalid(f'"{written}" is not a {what}', example)
    number, unit = match.groups()
    if unit not in units:
        fix = near_miss(unit, units) or f"use {one_of(units)}"
        raise Invalid(f'"{written}" is not a {what}: "{unit}" is not a unit', fix)
    return float(number) * units[unit]


def _text(raw: Any, example: str) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise Invalid("must be text", example)
    return raw.strip()


def _transform(raw: Any, example: str) -> Transform:
    text = _text(raw, example)
    call = _CALL.fullmatch(text)
    if not call:
        return Transform(_column(text, example))
    name, inner = call.groups()
    if name not in TRANSFORMS:
        raise Invalid(
            f'"{name}" is not a transform', near_miss(name, TRANSFORMS) or f"use {one_of(TRANSFORMS)}"
        )
    arguments = [part.strip() for part in inner.split(",")]
    if name in COUNTED_TRANSFORMS:
        count = arguments[0]
        if len(arguments) != 2 or not count.isascii() or not count.isdigit():
            raise Invalid(f'"{text}" needs a number and a column', f'write "{name}(16, column)"')
        if not 1 <= int(count) <= _MAX_ARGUMENT:
            raise Invalid(f'"{text}": {count} is out of range', f"use 1 to {_MAX_ARGUMENT}")
        return Transform(_column(arguments[1], example), name, int(count))  # type: ignore[arg-type]
    if len(arguments) != 1:
        raise Invalid(f'"{text}" takes one column', f'write "{name}(column)"')
    return Transform(_column(arguments[0], example), name)  # type: ignore[arg-type]


def _column(path: str, example: str) -> str:
    system = [f"{SYSTEM_COLUMN}.{each['name']}" for each in KAFKA["type"]["fields"]]
    if path in system:
        return path
    if path.split(".")[0].lower() == SYSTEM_COLUMN:
        raise Invalid(f'"{path}" is not a column', near_miss(path, system) or f"use {one_of(system)}")
    if problem := field_problem(path):
        raise Invalid(problem, example)
    return path


def _timestamp_ms(text: Any) -> int:
    example = "write it with its time zone, such as 2026-01-01T00:00:00Z"
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise Invalid(f'"{text}" is not a timestamp', example) from None
    if moment.tzinfo is None:
        raise Invalid(f'"{text}" has no time zone', example)
    return round(moment.timestamp() * 1000)


def _offsets(raw: Mapping[str, Any]) -> dict[int, int]:
    problems = []
    for partition, offset in raw.items():
        path = ("offsets", partition)
        if not (partition.isascii() and partition.isdigit()):
            problems.append(Problem(path, f'"{partition}" is not a partition', "use 0, 1, 2, ..."))
        elif type(offset) is not int or not 0 <= offset < 2**63:
            problems.append(Problem(path, f'"{offset}" is not an offset', "use the next offset to read"))
    if problems:
        raise InvalidParts(problems)
    return {int(partition): offset for partition, offset in raw.items()}
