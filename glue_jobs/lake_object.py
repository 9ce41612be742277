"""A small JSON object of the lake, read and written through the lake's own file IO: a job needs no other client of S3."""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from calve.spark_conf import CATALOG

READ_TIMEOUT_MS = 5000


class LakeObject:
    """One object. What cannot be read or written now is read or written the next time."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        prefix = f"spark.sql.catalog.{CATALOG}."
        jvm: Any = spark._jvm
        properties = jvm.java.util.HashMap()
        for key, value in spark.sparkContext.getConf().getAll():
            if key.startswith(prefix):
                properties.put(key.removeprefix(prefix), value)
        properties.put("http-client.apache.socket-timeout-ms", str(READ_TIMEOUT_MS))
        properties.put("s3.retry.num-retries", "0")
        self._io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
            properties["io-impl"], properties, spark.sparkContext._jsc.hadoopConfiguration()
        )
        self._uri = uri

    def read(self) -> dict[str, Any] | None:
        """What it says; None where there is none, or where it cannot be read."""
        try:
            stream = self._io.newInputFile(self._uri).newStream()
            try:
                said = json.loads(bytes(stream.readAllBytes()))
            finally:
                stream.close()
        except (Py4JError, ConnectionError, ValueError):
            return None
        return said if isinstance(said, dict) else None

    def write(self, text: str) -> bool:
        """Replace it; False where that could not be done."""
        try:
            stream = self._io.newOutputFile(self._uri).createOrOverwrite()
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
        except (Py4JError, ConnectionError):
            return False
        return True
