"""The object store, as tasks write and read its data files without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from urllib.parse import urlsplit

import pyarrow as pa
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.session import get_session
from pyarrow import fs
from pyspark.sql import SparkSession

from calve.config.spark_conf import CATALOG, NAMES_KEY
from calve.errors import Fatal, Retryable

ATTEMPTS = 4
"""Attempts per request. After them the round is retried with growing delays."""
SMALL_AT_ONCE = {"allow_delayed_open": True} if int(pa.__version__.partition(".")[0]) >= 21 else {}
"""A small file takes one request. Older Arrow, which Glue may have, needs three."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""The endpoint variables of all AWS clients. Arrow reads them too, but not how to address a bucket there."""
AWS_ERROR = re.compile(r"AWS Error (\w+)")
REFUSED = re.compile(r"ACCESS_DENIED|ACCESS_KEY|TOKEN|CREDENTIALS|SIGNATURE|UNRECOGNIZED_CLIENT")
"""In such a code: another attempt helps nothing."""
PROBE = "_calve/staging/probe"
"""Below the warehouse. A lake expires what is staged there."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Uses the credentials that boto finds in the process: the role on Glue, the environment on a laptop (ADR 58).

    names_key: uploads must name their encryption key. Arrow cannot do that.
    """

    region: str
    endpoint: str | None = None
    names_key: bool = False

    @classmethod
    def of(cls, spark: SparkSession) -> Storage:
        """From the configuration of the session's catalog."""
        get, catalog = spark.conf.get, f"spark.sql.catalog.{CATALOG}"
        endpoint = get(f"{catalog}.s3.endpoint", None)
        return cls(str(get(f"{catalog}.client.region")), endpoint, get(NAMES_KEY, None) == "true")

    def create(self, location: str) -> pa.NativeFile:
        """Create an object and upload it in parts. It does not exist before it is closed. Raises: as `failures`."""
        files, path = self._place(location)
        with failures():
            return files.open_output_stream(path)

    def open(self, location: str) -> pa.NativeFile:
        """Open an object to read parts of it. Raises: as `failures`."""
        files, path = self._place(location)
        with failures():
            return files.open_input_file(path)

    def _place(self, location: str) -> tuple[fs.FileSystem, str]:
        scheme, _, path = location.partition("://")
        return (fs.LocalFileSystem() if scheme == "file" else _s3(self, _keys())), path


@cache
def _credentials() -> Credentials | None:
    return get_session().get_credentials()


def _keys() -> ReadOnlyCredentials | None:
    """Boto asks for new keys well before these expire; otherwise this is no request."""
    found = _credentials()
    return found.get_frozen_credentials() if found else None


@lru_cache(maxsize=4)
def _s3(storage: Storage, keys: ReadOnlyCredentials | None) -> fs.S3FileSystem:
    """One per process and keys: it holds the connections."""
    named = (os.environ.get(each) for each in ENDPOINTS)
    endpoint = urlsplit(storage.endpoint or next(filter(None, named), "https:"))
    return fs.S3FileSystem(
        access_key=keys and keys.access_key,
        secret_key=keys and keys.secret_key,
        session_token=keys and keys.token,
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
    """Turn errors of the object store into `Retryable`, without names of objects."""
    try:
        yield
    except OSError as error:
        raise Retryable(f"the object store refused data files: {_code(error)}") from None


def _code(error: OSError) -> str:
    found = AWS_ERROR.search(str(error))
    return found[1] if found else type(error).__name__


def require_access(spark: SparkSession, warehouse: str) -> None:
    """Write an object in the way of data files: from this process, and from a worker if workers are other processes.

    Raises Fatal: the object store refused, so no round could write. Other errors are left to the rounds.
    """
    place, context = f"{warehouse}/{PROBE}", spark.sparkContext
    probe = partial(_refusal, Storage.of(spark))
    found = {"the driver": probe(place)}
    if not str(context.master).startswith("local"):
        found["a worker"] = context.parallelize([place], 1).map(probe).collect()[0]
    for process, refusal in found.items():
        if refusal:
            raise Fatal(
                f"{process} of the job cannot write data files below {warehouse}: {refusal}",
                fix="let the job's role write there, and use the lake's key: deploy again, or ask the owner of the bucket",
            )


def _refusal(storage: Storage, place: str) -> str | None:
    try:
        storage.create(place).close()
    except Retryable as error:
        code = error.message.rpartition(" ")[2]
    except OSError as error:
        code = _code(error)
    else:
        return None
    return code if REFUSED.search(code) else None
