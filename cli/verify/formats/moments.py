"""Texts that say a moment, and Debezium's types, which count by their names where the table is one of changes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_FARTHEST = timedelta(hours=18)
"""The greatest offset from UTC that a column's reader takes."""
_FAR = re.compile(r"(?P<before>-infinity|-\d{4,}-.*|0000-.*)|\+?infinity|\+\d{5,}-.*", re.ASCII)
_ISO = re.compile(r"[+-]?infinity|[+-]?\d+-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)", re.ASCII)
FIRST, LAST = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1
"""Microseconds of the first moment of the year 1, and of the last one of 9999."""

TIME = "io.debezium.time."
ZONED = f"{TIME}ZonedTimestamp"
MILLIS = f"{TIME}Timestamp"
MICROSECONDS = {MILLIS: 1000, f"{TIME}MicroTimestamp": 1}
"""Local times as numbers since 1970: how many microseconds their unit has."""
_AVRO = {
    ("int", f"{TIME}Date"): "date",
    ("long", MILLIS): MILLIS,
    ("long", f"{TIME}MicroTimestamp"): "local-timestamp-micros",
    ("string", ZONED): ZONED,
}


def bounded(micros: int) -> int:
    return min(max(micros, FIRST), LAST)


def database_moment(text: str) -> int | None:
    """As `moment`; a database has moments before and after all others, too."""
    far = _FAR.fullmatch(text) if _ISO.fullmatch(text) else None
    if far is None:
        return moment(text)
    return FIRST if far["before"] else LAST


def moment(text: str) -> int | None:
    """Microseconds since 1970; None where the text says no moment that is a whole number of them."""
    found = _MOMENT.fullmatch(text)
    try:
        if found:
            day, clock, fraction, sign, hours, minutes = found.groups()
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
            since = datetime.fromisoformat(f"{day}T{clock}+00:00") - EPOCH
            if int(minutes or 0) < 60 and offset <= _FARTHEST:
                shifted = since + (offset if sign == "-" else -offset)
                return shifted // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0"))
    except ValueError:
        pass
    return None


def with_logical_types(node: Any) -> Any:
    """A resolved Avro schema in which the types that Debezium names are logical types."""
    match node:
        case list():
            return [with_logical_types(each) for each in node]
        case {"type": "record" | "error", "fields": fields}:
            return node | {"fields": [each | {"type": with_logical_types(each["type"])} for each in fields]}
        case {"type": "array", "items": inner}:
            return node | {"items": with_logical_types(inner)}
        case {"type": "map", "values": inner}:
            return node | {"values": with_logical_types(inner)}
    logical = _AVRO.get((node["type"], str(node.get("connect.name"))))
    return node | {"logicalType": logical} if logical else node
