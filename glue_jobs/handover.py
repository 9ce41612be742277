"""Hand-over: a deploy names the generation of a job that is to run, and a run of another one finishes its rounds and ends."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from calve.log import event
from calve.spark_conf import CATALOG

POLL_S = 10.0
READ_TIMEOUT_MS = 5000


@dataclass(slots=True)
class HandOver:
    """Watches a control object, `{"generation": NAME or null}`; null asks every generation to end."""

    job: str
    generation: str
    control: str
    stop: threading.Event
    asked: threading.Event = field(default_factory=threading.Event)

    def watch(self, spark: SparkSession) -> None:
        """Poll the control object, in a thread that ends with the process."""
        control = _Control(spark, self.control)
        threading.Thread(target=self._poll, args=(control,), name="hand-over", daemon=True).start()

    def _poll(self, control: _Control) -> None:
        while not self.stop.is_set():
            named = control.read()
            if named is not None and named["generation"] != self.generation:
                event("job.handed_over", job=self.job, generation=self.generation, to=named["generation"])
                self.asked.set()
                self.stop.set()
                return
            self.stop.wait(POLL_S)


class _Control:
    """The object, read through the lake's own file IO: a job needs no other client of S3."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        prefix = f"spark.sql.catalog.{CATALOG}."
        jvm: Any = spark._jvm
        properties = jvm.java.util.HashMap()
        for key, value in spark.sparkContext.getConf().getAll():
            if key.startswith(prefix):
                properties.put(key.removeprefix(prefix), value)
        properties.put("http-client.apache.socket-timeout-ms", str(READ_TIMEOUT_MS))
        properties.put("s3.retry.num-retries", "0")  # the next poll is the retry
        self._io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
            properties["io-impl"], properties, spark.sparkContext._jsc.hadoopConfiguration()
        )
        self._uri = uri

    def read(self) -> dict[str, Any] | None:
        """What it says; None where there is none, or where it cannot be read: a run goes on until it is told to end."""
        try:
            stream = self._io.newInputFile(self._uri).newStream()
            try:
                said = json.loads(bytes(stream.readAllBytes()))
            finally:
                stream.close()
        except (Py4JError, ConnectionError, ValueError):
            return None
        return said if isinstance(said, dict) and "generation" in said else None
