"""One dead letter: as a JSON object that the record can be rebuilt from, and as lines for people."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from calve.columns import REDRIVEN, SEALED

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE = ("cluster_id", "topic_id", "topic", "partition", "offset")
PREVIEW_BYTES = 256
ROW_BYTES = 16
Letter = dict[str, Any]


def letters(batch: pa.RecordBatch) -> Iterator[Letter]:
    """The rows of a batch; the record's timestamp as `timestamp_ms`, since a producer may set one beyond any calendar."""
    moments = batch.column("timestamp").cast(pa.int64()).to_pylist()
    for row, moment in zip(batch.drop_columns(["timestamp"]).to_pylist(), moments, strict=True):
        place = {name: row[name] for name in PLACE}
        yield place | {"timestamp_ms": None if moment is None else moment // 1000} | row


def document(letter: Letter) -> dict[str, object]:
    """Every column as JSON has it; bytes are base64, null stays null."""
    headers, rejected_at = letter["headers"], letter["rejected_at"]
    return letter | {
        "key": _base64(letter["key"]),
        "value": _base64(letter["value"]),
        "headers": [{"key": each["key"], "value": _base64(each["value"])} for each in headers or ()],
        "rejected_at": None if rejected_at is None else rejected_at.isoformat(),
    }


def facts(letter: Letter) -> dict[str, object]:
    """Everything but the record's own bytes."""
    kind = {0: "set by the producer", 1: "set by the broker"}.get(letter["timestamp_type"], "of unknown kind")
    return {
        "topic": letter["topic"],
        "place": f"partition {letter['partition']} offset {letter['offset']}",
        "timestamp": f"{_moment(letter['timestamp_ms'])}, {kind}",
        "reason": letter["reason"],
        "meaning": letter["message"],
        "schema id": "-" if letter["schema_id"] is None else letter["schema_id"],
        "rejected at": "-" if letter["rejected_at"] is None else letter["rejected_at"].isoformat(),
        "stage": letter["stage"],
        "attempt": letter["attempt"],
        "redriven": letter.get(REDRIVEN) or "no",
        "sealed": f"by the masking key {letter[SEALED]}" if letter.get(SEALED) else "no",
        "round": letter["round"],
        "cluster, topic id": f"{letter['cluster_id']}/{letter['topic_id']}",
    }


def preview(data: bytes | None) -> str:
    """The first bytes in hex and, where they are printable ASCII, as text."""
    if data is None:
        return "null"
    if not data:
        return "empty"
    lines = [
        f"{start:04x}  {data[start : start + ROW_BYTES].hex(' '):<{3 * ROW_BYTES}} "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data[start : start + ROW_BYTES])
        for start in range(0, min(len(data), PREVIEW_BYTES), ROW_BYTES)
    ]
    if len(data) > PREVIEW_BYTES:
        lines.append(f"... {len(data) - PREVIEW_BYTES:,} bytes more: calve dead-letters export has them")
    return "\n".join(lines)


def size(data: bytes | None) -> str:
    return "" if data is None else f", {len(data):,} bytes"


def _moment(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "none"
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms since 1970"
    return moment.isoformat(timespec="milliseconds")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
