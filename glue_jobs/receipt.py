"""The receipt of a round: CPU seconds that its threads and tasks took, bytes written, and the requests behind them."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError

from calve.receipt import Held, requests
from glue_jobs.lake import PROPERTIES
from glue_jobs.staging import Staged
from glue_jobs.target import Target

GROUP = "spark.jobGroup.id"
MERGE_AT = "commit.manifest.min-count-to-merge"


class Meter:
    """Measures what happens in the thread that made it, and in the tasks of the Spark jobs that it starts, from then on.

    tasks_s: CPU seconds of tasks that Spark does not account for, added by whoever knows them.
    """

    def __init__(self, target: Target, group: str) -> None:
        self._target = target
        self._context: Any = target.lake.spark.sparkContext
        self._group = group
        self._context.setLocalProperty(GROUP, group)
        self._began = self._threads_s()
        self.tasks_s = 0.0

    def receipt(self, staged: Staged, letters: Staged, *, had_letters: bool) -> dict[str, Any]:
        """What the round has taken, with the commit that it is about to make, as figures for `calve.metrics`.

        The CPU seconds are those of this thread, and of the tasks as far as Spark has accounted for them; not what all threads
        share, such as the garbage collector, and not the commit's. `had_letters`: earlier rounds had dead letters.
        """
        main = self._target.main
        deletes = staged.deletes.files if staged.deletes else ()
        sizes = [int(each.fileSizeInBytes()) for each in (*staged.files, *deletes, *letters.files)]
        head = main.snapshot(main.head) if main.head else None
        asked = requests(
            sizes,
            Held.of(head.summary if head else {}),
            self._target.table.mode,
            merge_at=int(main.properties.get(MERGE_AT, PROPERTIES[MERGE_AT])),
            letters=bool(letters.rows),
            had_letters=had_letters,
        )
        cpu_s = self._threads_s() - self._began + self._tasks_s() + self.tasks_s
        return asked.metrics() | {"bytes_written": sum(sizes), "cpu_s": round(cpu_s, 3)}

    def _threads_s(self) -> float:
        """Of this thread in Python, and of the one in the JVM that works for it."""
        gateway: Any = self._context._gateway
        java = gateway.jvm.java.lang
        bean = java.management.ManagementFactory.getThreadMXBean()
        none, arguments = gateway.new_array(java.Class, 0), gateway.new_array(java.Object, 0)
        # The bean's own class is hidden from py4j: its interface is not.
        bean_type = java.Class.forName("java.lang.management.ThreadMXBean")
        return float(
            time.thread_time()
            + bean_type.getMethod("getCurrentThreadCpuTime", none).invoke(bean, arguments) / 1e9
        )

    def _tasks_s(self) -> float:
        """What Spark has forgotten already, in a job with very many tables, is left out."""
        spark, taken = self._context._jsc.sc(), 0
        store = spark.statusStore()
        for job in spark.statusTracker().getJobIdsForGroup(self._group):
            with suppress(Py4JJavaError):
                stages = store.job(job).stageIds()
                for stage in [int(stages.apply(at)) for at in range(stages.size())]:
                    with suppress(Py4JJavaError):
                        taken += store.lastStageAttempt(stage).executorCpuTime()
        return taken / 1e9
