"""Values as Spark gets them of the machines, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from calve.decoding.decode_plan import DecodePlan
from calve.schema.columns import field, struct
from calve.schema.writers import ProtobufWriter
from glue_jobs.decode.machines.judging import Judge


def judged(found: DecodePlan, *arrays: pa.Array) -> Any:
    """The structs of `glue_jobs.decode.decode`, of several arrays in one."""
    judge = Judge(found, found.columns)
    return pa.concat_arrays([each for array in arrays for each in judge.judge(array)])


def plan_of(writers: Sequence[ProtobufWriter]) -> DecodePlan:
    """The plan of some messages, all with the columns of the first one."""
    columns = struct(*(field(each.name, each.type) for each in writers[0].plan.columns))
    return DecodePlan(tuple(writers), columns=columns)
