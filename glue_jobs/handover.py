"""Hand-over: a deploy names the generation of a job that is to run, and a run of another one finishes its rounds and ends."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from calve.log import event
from glue_jobs.lake_object import LakeObject

POLL_S = 10.0


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
        control = LakeObject(spark, self.control)
        threading.Thread(target=self._poll, args=(control,), name="hand-over", daemon=True).start()

    def _poll(self, control: LakeObject) -> None:
        while not self.stop.is_set():
            named = control.read() or {}  # a run goes on until a new generation is named
            if named.get("generation", self.generation) != self.generation:
                event("job.handed_over", job=self.job, generation=self.generation, to=named["generation"])
                self.asked.set()
                self.stop.set()
                return
            self.stop.wait(POLL_S)
