"""Values with compressed payloads as they would be without compression."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calve.wire import Wire
from glue_jobs.columnar.framing import Prefixes
from glue_jobs.columnar.reader import Spans

INFLATED_BYTES = 16 * 2**20
"""So much is inflated at once, and one value more."""


def inflated(spans: Spans, wire: Wire) -> Iterator[Spans]:
    """All of the values; what cannot be inflated stays as it is."""
    if wire.deflated is None:
        yield spans
        return
    deflated = Prefixes([wire.deflated]).find(spans.data, spans.places, spans.sizes, spans.records) == 0
    kept = [spans.records[~deflated]]
    values: dict[int, bytes] = {}
    size = 0
    for record in spans.records[deflated].tolist():
        begin = spans.places[record]
        found = wire.plain(spans.data[begin : begin + spans.sizes[record]].tobytes())
        if found is None:
            kept.append(np.array([record]))
            continue
        values[record], size = found, size + len(found)
        if size >= INFLATED_BYTES:
            yield _spans(values, spans.places.size)
            values, size = {}, 0
    if values:
        yield _spans(values, spans.places.size)
    yield Spans(spans.data, spans.places, spans.sizes, np.sort(np.concatenate(kept)))


def _spans(values: dict[int, bytes], count: int) -> Spans:
    records = np.fromiter(values, np.int64, len(values))
    lengths = np.fromiter(map(len, values.values()), np.int32, len(values))
    places, sizes = np.zeros(count, np.int32), np.zeros(count, np.int32)
    places[records], sizes[records] = np.cumsum(lengths) - lengths, lengths
    return Spans(np.frombuffer(b"".join(values.values()), np.uint8), places, sizes, records)
