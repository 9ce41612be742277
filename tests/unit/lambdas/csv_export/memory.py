"""A program: exports one data file of many rows and prints what that took, as JSON. What is uploaded is counted and thrown away.

`python -m tests.unit.lambdas.csv_export.memory make FOLDER ROWS`, then the same with `export`: a process of its own, so that its
greatest memory is that of the export.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from moto import mock_aws

from calve.config.publishing import Csv, Measure
from tests.unit.lambdas.csv_export.lake import World, export, world

GROUP = 250_000
METRICS = '{"complete_until": 1795000000}'
START_US = int(datetime(2026, 11, 9, tzinfo=UTC).timestamp()) * 1_000_000
SETTINGS = {
    "rows": export(csv=Csv(gzip=False)),
    "groups": export(group_by=("text",), measures=(Measure("n", "count"), Measure("total", "sum", "ratio"))),
}


class Sink:
    """An S3 that remembers sizes only."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def get_paginator(self, name: str) -> Sink:
        del name
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return []

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        return {"UploadId": "1"}

    def upload_part(self, *, Body: bytes, **_: Any) -> dict[str, str]:
        self.size_bytes += len(Body)
        return {"ETag": "1"}

    def complete_multipart_upload(self, **_: Any) -> None: ...

    def put_object(self, **_: Any) -> None: ...


def data(rows: int) -> pa.Table:
    """Rows within the window that hardly compress, as a file of real trades would."""
    ids = pa.array(range(rows), pa.int64())
    chance = pc.random(rows)
    cents = pc.cast(pc.round(pc.multiply(chance, 1e9)), pa.int64())
    return pa.table(
        {
            "id": ids,
            "at": pc.cast(pc.add(ids, START_US), pa.timestamp("us", "UTC")),
            "price": pc.cast(cents, pa.decimal128(19, 0)).cast(pa.decimal128(23, 4)),
            "ratio": chance,
            "text": pc.binary_join_element_wise(
                "user", pc.cast(pc.bit_wise_and(cents, 1023), pa.string()), "_"
            ),
            "more": pc.cast(pc.random(rows), pa.string()),
        }
    )


def make(path: Path, rows: int) -> None:
    first = data(1)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for start in range(0, rows, GROUP):
            writer.write_table(data(min(GROUP, rows - start)))


def measure(folder: Path, path: Path, kind: str) -> dict[str, Any]:
    with mock_aws():
        lake: World = world(folder)
        sink = lake.s3 = Sink()
        table = lake.table(data(1))
        table.add_files(
            [str(path)], snapshot_properties={"calve.to": "{}", "calve.round": "r", "calve.metrics": METRICS}
        )
        before = _peak_mb()
        began = time.process_time()
        (outcome,) = lake.run(SETTINGS[kind])
        took = time.process_time() - began
    return {
        "rows": pq.ParquetFile(path).metadata.num_rows,
        "file_mb": path.stat().st_size >> 20,
        "csv_mb": sink.size_bytes >> 20,
        "written": outcome.rows,
        "cpu_s": round(took, 1),
        "before_mb": before,
        "peak_mb": _peak_mb(),
    }


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    verb, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    file = folder / f"{rows}.parquet"
    if verb == "make":
        make(file, rows)
    else:
        os.environ |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        sys.stdout.write(json.dumps(measure(folder, file, verb)) + "\n")
