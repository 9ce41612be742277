"""The column that says where a row comes from, as Arrow has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glue_jobs.kafka.columns import KIND, header_lists, parts
from glue_jobs.kafka.records import Records
from glue_jobs.texts import Longs


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
