"""A Delta log in S3: its state, its versions, its checkpoints (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).

A version is one object. S3 writes it only if it is not there, so two functions never both write a version.
Deletion vectors lie in `_delta_vectors/`: Iceberg and Delta take no file for an orphan whose folder begins with `_`.
"""

from __future__ import annotations

import io
import json
import struct
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from calve.errors import Retryable
from lambdas.aws import read_if_there, tolerating

Action = dict[str, Any]
"""One line of a version: an object with one key, such as `add`, as in the protocol."""
LOG, VECTORS = "_delta_log/", "_delta_vectors/"
EACH = 10
"""Versions from one checkpoint to the next."""
KEPT = timedelta(days=7)
"""How long versions before a checkpoint are kept, and vectors that no file has any more."""
CLEANED = 10
"""Checkpoints from one cleaning to the next."""
INLINE = 1_024
"""The most bytes of a vector inside its action. Readers hold all of these in memory."""
PORTABLE = 1_681_511_377
"""The number before a vector: a list of Roaring bitmaps, in the portable form."""


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as of one version; -1: there is none. files: `add` by path. positions: of each writer that names one (`txn`)."""

    version: int = -1
    files: Mapping[str, Action] = field(default_factory=dict)
    metadata: Action | None = None
    protocol: Action | None = None
    positions: Mapping[str, Action] = field(default_factory=dict)

    def plus(self, actions: Iterable[Action]) -> Self:
        """The state after one more version. The order of a version's actions means nothing: a path is removed, then added."""
        actions = list(actions)
        files = dict(self.files)
        for each in actions:
            if removed := each.get("remove"):
                files.pop(removed["path"], None)
        files |= {each["add"]["path"]: each["add"] for each in actions if "add" in each}
        said = {kind: value for each in actions for kind, value in each.items()}
        positions = {each["txn"]["appId"]: each["txn"] for each in actions if "txn" in each}
        return type(self)(
            self.version + 1,
            files,
            said.get("metaData", self.metadata),
            said.get("protocol", self.protocol),
            {**self.positions, **positions},
        )

    @property
    def actions(self) -> Iterator[Action]:
        """The state as the actions of a checkpoint."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.metadata}
        yield from ({"txn": each} for each in self.positions.values())
        yield from ({"add": each} for each in self.files.values())


@dataclass(frozen=True)
class DeltaLog:
    """The log of the table at `location`. `s3`: the client."""

    s3: Any
    location: str

    def read(self) -> LogState:
        """The newest state: that of the last checkpoint, and the versions after it."""
        pointer = read_if_there(self.s3, self._bucket, f"{self._log}_last_checkpoint")
        state = LogState()
        if pointer:
            version = json.loads(pointer)["version"]
            state = _of_checkpoint(version, self._get(f"{self._log}{version:020}.checkpoint.parquet"))
        for key in self._keys(self._log, after=f"{self._log}{max(state.version, 0):020}"):
            name = key.removeprefix(self._log)
            if name == f"{state.version + 1:020}.json":
                state = state.plus(json.loads(line) for line in self._get(key).splitlines() if line)
        return state

    def write(self, state: LogState, actions: Sequence[Action]) -> LogState:
        """The next version. Raises Retryable: another function wrote it first."""
        after = state.plus(actions)
        lines = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in actions)
        written = False
        with tolerating("PreconditionFailed", "ConditionalRequestConflict"):
            self._put(f"{self._log}{after.version:020}.json", lines.encode(), IfNoneMatch="*")
            written = True
        if not written:
            raise Retryable(
                f"another writer wrote version {after.version} of the Delta log of {self.location}"
            )
        if after.version and after.version % EACH == 0:
            self._checkpoint(after)
        return after

    def vectors(self, deleted: Mapping[str, BitMap64]) -> dict[str, Action]:
        """A descriptor for the deleted positions of each file. Long vectors are written into one object, once."""
        made: dict[str, Action] = {}
        name = f"{VECTORS}{uuid.uuid4().hex}.bin"
        body = bytearray(b"\x01")  # the version of the format
        for path, positions in deleted.items():
            data = struct.pack("<I", PORTABLE) + positions.serialize()
            said = {"sizeInBytes": len(data), "cardinality": len(positions)}
            if len(data) <= INLINE:
                made[path] = {"storageType": "i", "pathOrInlineDv": z85(data), **said}
                continue
            place = {"pathOrInlineDv": f"{self._root}{name}", "offset": len(body)}
            made[path] = {"storageType": "p", **place, **said}
            body += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        if len(body) > 1:
            self._put(f"{self._prefix}{name}", bytes(body))
        return made

    def path_of(self, location: str) -> str:
        """A data file as an action names it: relative to the table if it lies below it, percent-encoded."""
        return quote(location.removeprefix(self._root), safe="/:")

    def location_of(self, path: str) -> str:
        decoded = unquote(path)
        return decoded if "://" in decoded else f"{self._root}{decoded}"

    def drop(self) -> None:
        """Delete the log and its vectors; no data file."""
        self._delete(self._keys(f"{self._prefix}{VECTORS}"))
        self._delete(self._keys(self._log))

    def _checkpoint(self, state: LogState) -> None:
        rows = list(state.actions)
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([_row(each) for each in rows], _CHECKPOINT), body)
        self._put(f"{self._log}{state.version:020}.checkpoint.parquet", body.getvalue())
        pointer = {"version": state.version, "size": len(rows)}
        self._put(f"{self._log}_last_checkpoint", json.dumps(pointer).encode())
        if state.version % (EACH * CLEANED) == 0:
            self._clean(state)

    def _clean(self, state: LogState) -> None:
        before = datetime.now(UTC) - KEPT
        named = {(each.get("deletionVector") or {}).get("pathOrInlineDv") for each in state.files.values()}
        vectors = self._keys(f"{self._prefix}{VECTORS}", before=before)
        self._delete(each for each in vectors if f"s3://{self._bucket}/{each}" not in named)
        newest = f"{self._log}{state.version:020}"
        self._delete(each for each in self._keys(self._log, before=before) if each < newest)

    def _keys(self, prefix: str, *, after: str = "", before: datetime | None = None) -> Iterator[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix, **({"StartAfter": after} if after else {})
        )
        for each in (each for page in pages for each in page.get("Contents", ())):
            if before is None or each["LastModified"] < before:
                yield each["Key"]

    def _delete(self, keys: Iterable[str]) -> None:
        for each in list(keys):
            self.s3.delete_object(Bucket=self._bucket, Key=each)

    def _get(self, key: str) -> bytes:
        return bytes(self.s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())

    def _put(self, key: str, body: bytes, **options: str) -> None:
        self.s3.put_object(Bucket=self._bucket, Key=key, Body=body, **options)

    @cached_property
    def _root(self) -> str:
        return f"{self.location.rstrip('/')}/"

    @cached_property
    def _bucket(self) -> str:
        return urlsplit(self.location).netloc

    @cached_property
    def _prefix(self) -> str:
        return f"{urlsplit(self.location).path.strip('/')}/"

    @property
    def _log(self) -> str:
        return f"{self._prefix}{LOG}"


def removed(add: Action) -> Action:
    """The action that removes a file. Readers match it by path and vector."""
    kept = {key: add[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in add}
    now = time.time_ns() // 1_000_000
    return {"remove": {**kept, "deletionTimestamp": now, "extendedFileMetadata": True}}


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    """Text of 5 characters for 4 bytes (https://rfc.zeromq.org/spec/32/); zeros fill the last 4."""
    padded = data + bytes(-len(data) % 4)
    numbers = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(_Z85[number // 85**place % 85] for number in numbers for place in (4, 3, 2, 1, 0))


_TEXTS = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "deletionVector": pa.struct(
                    {
                        "storageType": pa.string(),
                        "pathOrInlineDv": pa.string(),
                        "offset": pa.int32(),
                        "sizeInBytes": pa.int32(),
                        "cardinality": pa.int64(),
                    }
                ),
            }
        ),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
    }
)


def _row(action: Action) -> Action:
    """An action whose maps are lists of pairs, as Arrow takes them."""
    (kind, value), *_ = action.items()
    value = dict(value)
    for key in ("partitionValues", "configuration"):
        if key in value:
            value[key] = list(value[key].items())
    if "format" in value:
        value["format"] = {"provider": value["format"]["provider"], "options": []}
    return {kind: value}


def _of_checkpoint(version: int, body: bytes) -> LogState:
    found = pq.read_table(io.BytesIO(body)).to_pylist(maps_as_pydicts="strict")
    rows = [{kind: _said(value) for kind, value in each.items() if value is not None} for each in found]
    return LogState(version - 1).plus(rows)


def _said(value: Action) -> Action:
    """Without what is null, as in a version."""
    return {
        key: _said(one) if isinstance(one, dict) else one for key, one in value.items() if one is not None
    }
