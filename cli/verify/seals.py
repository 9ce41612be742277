"""Sealed dead letters, opened with the masking keys: by the description of a seal in ADR 22, not by the job's code."""

from __future__ import annotations

import hmac
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from calve.columns import SEALED
from calve.errors import ConfigError
from calve.masking import read_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS = ("cluster_id", "topic_id", "partition", "offset", "round", SEALED)
"""What a letter is opened by, beside its bytes."""
BYTES = ("key", "value", "headers")
NONCE_BYTES = 12


class Seals:
    """The keys of a secret, by the reference to it, read once there is something to be opened. None: there is no secret."""

    def __init__(self, reference: str | None) -> None:
        self._reference = reference

    def opened(self, letters: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """The letters as their records were received, and which could not be opened for want of a key: without `BYTES`.

        What does not open with its key is left as it is: it is not the record.
        """
        unopened = pa.repeat(pa.scalar(False), letters.num_rows)  # noqa: FBT003 a value
        if SEALED not in letters.schema.names or letters.column(SEALED).null_count == letters.num_rows:
            return letters, unopened
        unopened = pa.array(each not in (None, *self._keys) for each in letters.column(SEALED).to_pylist())
        rows = [self._opened(row) for row in letters.select([*FIELDS, *BYTES]).to_pylist()]
        for name in BYTES:
            place = letters.schema.get_field_index(name)
            clear = pa.array([row[name] for row in rows], letters.schema.field(name).type)
            letters = letters.set_column(place, letters.schema.field(name), clear)
        return letters, unopened

    @cached_property
    def _keys(self) -> Mapping[str, bytes]:
        """Id -> what the keys of rounds are made of; none where whoever asks may not read the secret."""
        try:
            keys = read_keys(self._reference) if self._reference else ()
        except ConfigError:
            return {}
        return {each.id: hmac.digest(each.secret, b"calve.dead-letters", "sha512")[:32] for each in keys}

    def _opened(self, row: dict[str, Any]) -> dict[str, Any]:
        if row[SEALED] is None:
            return row
        if row[SEALED] not in self._keys:
            return row | dict.fromkeys(BYTES)
        key = hmac.digest(self._keys[row[SEALED]], row["round"].encode(), "sha256")
        place = f"{row['cluster_id']}/{row['topic_id']}/{row['partition']}/{row['offset']}"
        headers = row["headers"] and [
            each | {"value": _clear(key, each["value"], f"headers.{n}/{place}")}
            for n, each in enumerate(row["headers"])
        ]
        parts = {name: _clear(key, row[name], f"{name}/{place}") for name in ("key", "value")}
        return row | parts | {"headers": headers}


def _clear(key: bytes, data: bytes | None, bound: str) -> bytes | None:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if data is None:
        return None
    try:
        return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound.encode())
    except (InvalidTag, ValueError):
        return data
