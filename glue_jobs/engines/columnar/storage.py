"""The object store as tasks write to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import SparkSession

from calve.config.spark_conf import CATALOG, NAMES_KEY
from calve.errors import Retryable

ATTEMPTS = 4
"""Of a request; after them the round is tried again, ever later."""
SMALL_AT_ONCE = {"allow_delayed_open": True} if int(pa.__version__.partition(".")[0]) >= 21 else {}
"""A small file is one request. Older Arrow, which Glue may have, makes three of it."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Where every other client of AWS in the process looks for it; Arrow takes it from there, but not how to reach a bucket there."""
AWS_ERROR = re.compile(r"AWS Error (\w+)")


@dataclass(frozen=True, slots=True)
class Storage:
    """Credentials are those of the process: of the role on Glue, of the environment on a laptop.

    names_key: what is sent must name the key that encrypts it, which Arrow does not.
    """

    region: str
    endpoint: str | None = None
    names_key: bool = False

    @classmethod
    def of(cls, spark: SparkSession) -> Storage:
        """As the session's catalog has it."""
        get, catalog = spark.conf.get, f"spark.sql.catalog.{CATALOG}"
        endpoint = get(f"{catalog}.s3.endpoint", None)
        return cls(str(get(f"{catalog}.client.region")), endpoint, get(NAMES_KEY, None) == "true")

    def create(self, location: str) -> pa.NativeFile:
        """A new object, sent in parts while it is written; there is none before it is closed.

        Raises:
            Retryable: the object store fails.
        """
        system, path = self._system(location)
        with failures():
            return system.open_output_stream(path)

    def _system(self, location: str) -> tuple[fs.FileSystem, str]:
        scheme, _, path = location.partition("://")
        if scheme == "file":
            return fs.LocalFileSystem(), path
        return _s3(self), path


@cache
def _s3(storage: Storage) -> fs.S3FileSystem:
    """One for a process: it holds the connections."""
    named = (os.environ.get(each) for each in ENDPOINTS)
    endpoint = urlsplit(storage.endpoint or next(filter(None, named), "https:"))
    return fs.S3FileSystem(
        region=storage.region,
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc or None,
        connect_timeout=5,
        request_timeout=60,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **SMALL_AT_ONCE,
    )


@contextmanager
def failures() -> Iterator[None]:
    """What the object store fails with, without the names of objects."""
    try:
        yield
    except OSError as error:
        found = AWS_ERROR.search(str(error))
        raise Retryable(
            f"the object store takes no data files: {found[1] if found else type(error).__name__}"
        ) from None
