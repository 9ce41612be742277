"""One task of a round: offsets of a topic become data files, and figures; no row leaves it.

A task runs in a Python worker of Spark, or in the driver where a round is small. It answers by values, errors too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from calve.config.masking_keys import Key
from calve.decoding.decode_plan import Decoding
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import Json
from glue_jobs.columns.texts import Longs
from glue_jobs.engines.columnar.counted import Counted, Values, values_of
from glue_jobs.engines.columnar.decoder import Decoder
from glue_jobs.engines.columnar.layouts import Layout
from glue_jobs.engines.columnar.parquet import Files, Written
from glue_jobs.engines.columnar_steps.chain import Steps
from glue_jobs.kafka.client import Settings
from glue_jobs.kafka.columns import KIND, header_lists, parts
from glue_jobs.kafka.fetching import CHUNK_BYTES, Range, fetch
from glue_jobs.kafka.records import Records
from glue_jobs.process.workers import Trouble, spent_s


def kafka_column(topic: str, records: Records, chosen: Longs, schema_id: Any) -> Any:
    """`_kafka` of the chosen records; the source has refused none of them. schema_id: theirs, as `Decoded` has it."""
    size = chosen.size
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), size),
        pa.repeat(pa.scalar(records.partition, pa.int32()), size),
        pa.array(records.offset[chosen]),
        pa.array(records.timestamp[chosen] * 1000).view(KIND.field("timestamp").type),
        pa.array(records.timestamp_type[chosen].astype(np.int32)),
        parts(KIND.field("key").type, records.buffer, records.key_at[chosen], records.key_size[chosen]),
        header_lists(records, chosen),
        schema_id,
    ]
    return pa.StructArray.from_arrays(columns, fields=list(KIND))


@dataclass(frozen=True, slots=True)
class Work:
    """What the tasks of a staging share. columns: those that records are decoded to. location: where the names of their files
    begin, of this staging and of no other. count_by: a column whose values are counted. keys: those that mask.
    """

    settings: Settings
    topic: str
    topic_id: str
    decoding: Decoding
    columns: Json
    layout: Layout
    location: str
    steps: Steps | None = None
    count_by: str | None = None
    keys: tuple[Key, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Done:
    """cpu_s: CPU seconds of the worker's process that no other task has told."""

    files: tuple[Written, ...]
    counted: Counted
    cpu_s: float = 0.0


def run_task(work: Work, ranges: tuple[Range, ...], place: str) -> Done | Trouble:
    """Do a part of the work. place: names the task and its attempt in the names of its files."""
    files = Files(work.layout, f"{work.location}-{place}")
    try:
        counted = Counted.together(_chunks(work, ranges, files))
        return Done(tuple(files.close()), counted)
    except Exception as error:  # noqa: BLE001 told by value
        files.abort()
        return Trouble.of(error)


def run_in_worker(work: Work, ranges: tuple[Range, ...], number: int) -> Done | Trouble:
    """The same in a worker of Spark, with the CPU seconds of its process."""
    context = TaskContext.get()
    done = run_task(work, ranges, f"{number}-{context.taskAttemptId() if context else 0}")
    taken_s = spent_s()
    return Done(done.files, done.counted, taken_s) if isinstance(done, Done) else done


def _chunks(work: Work, ranges: tuple[Range, ...], files: Files) -> Iterator[Counted]:
    """Write chunk by chunk, and count each."""
    decoder = Decoder(work.decoding, work.columns)
    for records in fetch(work.settings, work.topic, work.topic_id, ranges, CHUNK_BYTES):
        decoded = decoder.decode(records)
        yield Counted.of_records(records, decoded.rejected, decoded.others)
        kafka = kafka_column(work.topic, records, decoded.good, decoded.schema_id)
        columns = decoded.columns.append_column(SYSTEM_COLUMN, kafka)
        if work.steps is None:
            files.write(columns)
            yield Counted(values=_values(work, columns))
            continue
        for made in work.steps.run(columns, work.keys):
            files.write(made.rows)
            yield Counted.of_rows(
                records.offset[decoded.good[made.rejected]],
                left_out=made.left_out,
                made=made.made,
                failed=made.failed,
                cut=made.cut,
                values=_values(work, made.rows),
            )


def _values(work: Work, rows: pa.Table) -> Values | None:
    return values_of(rows[work.count_by]) if work.count_by else {}
