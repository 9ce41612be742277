"""The message of a dead letter: where and why its value or key does not match the schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType

from calve.decoding.decode_plan import DecodePlan
from calve.schema.wire import BARE
from calve.schema.writers import AvroWriter, JsonWriter, PlainWriter, ProtobufWriter, Writer
from glue_jobs.decode.explaining import avro_values, json_values, protobuf_values
from glue_jobs.decode.explaining.walk import Misfit, Walk

EXPLAINED = (
    "malformed",
    "trailing_bytes",
    "incompatible_schema",
    "bad_event",
    "key_malformed",
    "key_incompatible_schema",
)
"""Reject reasons with an explanation: of the key if they begin with `key_`, else of the value."""
MOST_EXPLAINED = 1_000
"""The most explained records per reason and task. The others get the sentence of their reason."""
MOST_STEPS, STEPS_OF_ONE = 5_000_000, 200_000


@dataclass(slots=True)
class Explainer:
    """Explains records until its steps are used up. Returns None if it finds nothing wrong; never raises."""

    decoding: DecodePlan
    left: int = MOST_STEPS
    counts: Counter[str] = field(default_factory=Counter)

    def explain(self, reason: str, data: bytes) -> str | None:
        part = "key" if reason.startswith("key_") else "value"
        self.counts[reason] += 1
        if self.counts[reason] > MOST_EXPLAINED or self.left <= 0:
            return None
        decoding = self.decoding.key if part == "key" else self.decoding
        wire = decoding.wire if decoding else BARE
        if wire.deflated and data.startswith(wire.deflated):
            data = wire.plain(data) or data
        walk = Walk(f"the {part}", min(STEPS_OF_ONE, self.left))
        given = walk.left
        try:
            for writer in decoding.writers if decoding else ():
                _explain(data, writer, walk, by_message=reason.endswith("incompatible_schema"))
        except Misfit as misfit:
            return str(misfit)
        except Exception:  # noqa: BLE001 it gave up or failed: an explanation must not lose the dead letter
            return None
        finally:
            self.left -= given - walk.left
        return None


def explanation(decoding: DecodePlan, reason: Column, value: Column, key: Column, headers: Column) -> Column:
    """The explanation, or null. `value` and `key`: as `named_column`."""

    def explained(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        explainer = Explainer(decoding)
        for reasons, parts, theirs in batches:
            held: Iterable[bytes | None] = (each.as_py() for each in parts)
            faults: dict[int, str] = {}
            if decoding.event:
                held, faults = _opened(decoding, reasons, parts, theirs)
            found = [
                faults.get(place) if data is None else explainer.explain(each, data)
                for place, (each, data) in enumerate(zip(reasons.to_pylist(), held, strict=True))
            ]
            yield pa.array(found, pa.string())

    part = F.when(reason.startswith("key_"), key).otherwise(value)
    made: Any = arrow_udf(explained, StringType())  # type: ignore[call-overload]
    theirs = headers if decoding.event else F.lit(None)
    found: Column = made.asNondeterministic()(reason, F.when(reason.isin(*EXPLAINED), part), theirs)
    return found


def _opened(
    decoding: DecodePlan, reasons: pa.Array, parts: pa.Array, headers: pa.Array
) -> tuple[list[bytes | None], dict[int, str]]:
    """The data of CloudEvents, and why a record is none, by place. Keys are left as they are."""
    # Where the job starts, this would compile.
    from glue_jobs.columns.buffers import spans_of
    from glue_jobs.decode.machines.cloud_events import fault, opened

    is_key = pc.starts_with(reasons, "key_")
    values = spans_of(pc.if_else(is_key, None, parts))
    found = opened(values, headers, framed=decoding.wire.size > 0)
    spans = found.spans
    ends = zip(spans.places.tolist(), spans.sizes.tolist(), strict=True)
    held = [None if size < 0 else spans.data[at : at + size].tobytes() for at, size in ends]
    faults = dict(zip(found.bad.tolist(), map(fault, found.codes.tolist()), strict=True))
    for place in faults:
        held[place] = None
    for place in np.flatnonzero(is_key).tolist():
        held[place] = parts[place].as_py()
    return held, faults


def _explain(data: bytes, writer: Writer, walk: Walk, *, by_message: bool) -> None:
    """Raises `Misfit` if the value does not match. by_message: if it is another message of the writer's file."""
    if by_message:
        if isinstance(writer, ProtobufWriter):
            for name in (name for prefix, name in writer.others.items() if data.startswith(prefix)):
                raise walk.wrong(f"the message {writer.message}", f"the message {name}")
        return
    if not data.startswith(writer.prefix):
        return
    match writer:
        case AvroWriter():
            avro_values.explain(data, writer, walk)
        case JsonWriter():
            json_values.explain(data, writer, walk)
        case ProtobufWriter():
            protobuf_values.explain(data, writer, walk)
        case PlainWriter() if writer.text:
            raise walk.wrong("a text in UTF-8", "other bytes")
