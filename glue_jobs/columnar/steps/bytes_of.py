"""Texts and bytes of Arrow as kernels take them, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Begins = NDArray[np.int32]
Bytes = NDArray[np.uint8]


def spans(array: pa.Array) -> tuple[Begins, Bytes]:
    """Where each value begins in the bytes, one place more than there are values, and the bytes."""
    _, begins, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    found = np.frombuffer(begins, np.int32)[array.offset : array.offset + len(array) + 1]
    return found, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def texts(begins: Begins, data: Bytes, like: pa.Array) -> pa.Array:
    """Texts out of the bytes; null where `like` is."""
    buffers = [validity(like), pa.py_buffer(begins), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(like), buffers)


def validity(array: pa.Array) -> pa.Buffer | None:
    """The bits of what is not null."""
    return pc.is_valid(array).buffers()[1] if array.null_count else None
