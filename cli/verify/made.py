"""What a step makes of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Made:
    """left_out: the places of rows that the step leaves out; failed: of those on which it fails, by why."""

    rows: pa.RecordBatch
    left_out: Any = None
    failed: Mapping[str, Any] = field(default_factory=dict)


class Run(Protocol):
    """A step. tombstones: of the rows nothing is there but the key."""

    def __call__(self, rows: pa.RecordBatch, *, tombstones: bool) -> Made: ...
