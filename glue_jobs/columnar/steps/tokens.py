"""Tokens: the HMAC-SHA-256 of a value by the key of its record's time, as `glue_jobs.steps.tokens` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.masking import Key, pads
from glue_jobs.columnar.steps.bytes_of import spans, texts
from glue_jobs.columnar.steps.sha256 import DIGITS, state_of, write_tokens


@dataclass(frozen=True, slots=True)
class Tokens:
    """which: the place of the key that hashes each value. heads: what the tokens of each key begin with."""

    which: NDArray[np.int64]
    heads: tuple[bytes, ...]
    inner: NDArray[np.uint32] = field(repr=False)
    outer: NDArray[np.uint32] = field(repr=False)

    @staticmethod
    def of(keys: Sequence[Key], kafka: pa.StructArray) -> Tokens:
        """keys: as `calve.masking.read_keys`. The last of them whose time had begun when the record was made, else the first."""
        made = kafka.field("timestamp")
        known = made.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        since = np.array([each.since_us for each in keys], np.int64)
        which = np.maximum(np.searchsorted(since, known, "right") - 1, 0)
        both = [pads(each.secret) for each in keys]
        inner, outer = (
            np.array([state_of(pair[n]) for pair in both], np.uint32).reshape(-1, 8) for n in (0, 1)
        )
        return Tokens(which, tuple(f"{each.id}:".encode() for each in keys), inner, outer)

    def of_items(self, sizes: NDArray[np.int32]) -> Tokens:
        """The same for the items of lists of these sizes."""
        return replace(self, which=np.repeat(self.which, sizes))

    def made_of(self, values: pa.Array) -> pa.Array:
        """The tokens of texts or of bytes; null of null."""
        begins, data = spans(values)
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        sizes = np.array([len(each) + DIGITS for each in self.heads], np.int64)[self.which]
        out_begins = np.concatenate([[0], np.cumsum(np.where(valid, sizes, 0))]).astype(np.int32)
        out = np.empty(out_begins[-1], np.uint8)
        head_begins = np.cumsum([0, *map(len, self.heads)], dtype=np.int32)
        heads = np.frombuffer(b"".join(self.heads), np.uint8)
        there = np.flatnonzero(valid)
        order = there[np.argsort(np.diff(begins)[there], kind="stable")]
        write_tokens(
            order, begins, data, self.which, self.inner, self.outer, heads, head_begins, out_begins, out
        )
        return texts(out_begins, out, values)
