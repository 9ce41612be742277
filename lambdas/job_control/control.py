"""The control object of a job: which generation may run. The running job polls it and ends where it is another's turn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from calve.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Control:
    """Where a job's control object lies."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Control:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        if not uri.startswith("s3://") or not bucket or not key:
            raise ConfigError(f"{uri} is no place of a control object", fix="use s3://BUCKET/KEY")
        return cls(bucket, key)

    def write(self, s3: Any, generation: str | None) -> None:
        """Name the generation that may run; None: none may."""
        body = json.dumps({"generation": generation}).encode()
        s3.put_object(Bucket=self.bucket, Key=self.key, Body=body, ContentType="application/json")

    def clear(self, s3: Any) -> None:
        """Let no generation run; a bucket that is gone lets none run either."""
        try:
            self.write(s3, None)
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchBucket":
                raise

    def read(self, s3: Any, default: str | None) -> str | None:
        """The generation that may run; `default` where nobody has ever said."""
        try:
            body = s3.get_object(Bucket=self.bucket, Key=self.key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket"):
                return default
            raise
        generation = json.loads(body)["generation"]
        return None if generation is None else str(generation)
