"""Where the files of an export are, and the manifest above them: written last, and the only one that makes a mail go out.

Each run writes into a folder of its own, so that two runs of one window that overlap never write the same object. A manifest
names the files of its run alone; those of a run that was killed are named by none, and go by the bucket's lifecycle.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from calve.config.export import Export
from lambdas.csv_export.window import Period

FORMAT = 1
PUTS = 5
"""How often S3 is asked to write a manifest while something else is being done to the same key."""

NAME = "manifest.json"
CONTENT = (
    "database",
    "table",
    "time_column",
    "time_zone",
    "columns",
    "filter",
    "group_by",
    "measures",
    "csv",
)
"""The settings of an export that decide what a file says."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one window of one export, in the lake's bucket. `run` names the folder of those that this run writes."""

    s3: Any
    bucket: str
    prefix: str
    export: Export
    period: Period
    run: str

    @property
    def path(self) -> str:
        return f"{self.prefix}{self.export.name}/{self.period.name}/"

    def file_key(self, n: int, *, numbered: bool) -> Callable[[int], str]:
        """The name of the i-th file of delivery `n`; `numbered` where there is more than one."""
        ending = ".csv.gz" if self.export.csv.gzip else ".csv"
        stem = f"{self.path}{n}/{self.run}/{self.export.name}_{self.period.name}"
        return lambda i: f"{stem}_part{i:02}{ending}" if numbered else f"{stem}{ending}"

    def manifest_key(self, n: int) -> str:
        return f"{self.path}{n}/{NAME}"

    def newest(self) -> tuple[int, Manifest] | None:
        """The last delivery that has a manifest: its number, and what it says."""
        numbers = []
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.path)
        for page in pages:
            for each in page.get("Contents", []):
                number, _, name = each["Key"].removeprefix(self.path).partition("/")
                if name == NAME and number.isdecimal():
                    numbers.append(int(number))
        if not numbers:
            return None
        return max(numbers), json.loads(self._read(max(numbers)))

    def put(self, n: int, manifest: Manifest) -> bool:
        """Write the manifest of delivery `n`; False where another run has written one."""
        body = json.dumps(manifest, sort_keys=True, indent=2).encode()
        for tries_left in reversed(range(PUTS)):
            try:
                self._create(n, body)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == "PreconditionFailed":
                    # The client repeats a put whose answer was lost; what refuses it then is this run's own manifest.
                    return self._read(n) == body
                if code != "ConditionalRequestConflict" or not tries_left:
                    raise
            else:
                break
        return True

    def _create(self, n: int, body: bytes) -> None:
        self.s3.put_object(
            Bucket=self.bucket,
            Key=self.manifest_key(n),
            Body=body,
            ContentType="application/json",
            IfNoneMatch="*",
        )

    def _read(self, n: int) -> bytes:
        body: bytes = self.s3.get_object(Bucket=self.bucket, Key=self.manifest_key(n))["Body"].read()
        return body


def same_definition(manifest: Manifest, export: Export) -> bool:
    """Whether the manifest's file was made by the same settings, as far as they decide what it says."""
    before = Export.from_json(json.dumps(manifest["export"]))  # of an earlier release it lacks options
    return all(getattr(before, key) == getattr(export, key) for key in CONTENT)
