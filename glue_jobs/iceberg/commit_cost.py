"""The cost of a commit: CPU seconds of threads and tasks, bytes written, and requests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from py4j.protocol import Py4JJavaError

from calve.rounds.commit_cost import Held, Requests, requests, requests_of_work
from calve.table.summary import PROPERTIES
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.staging import Staged
from glue_jobs.process.java import method

GROUP = "spark.jobGroup.id"
MERGE_AT = "commit.manifest.min-count-to-merge"


class CostMeter:
    """Measures, from its creation on, the thread that created it and the tasks of that thread's Spark jobs.

    CPU seconds cover this thread and its tasks, as far as Spark or the staging code reports them.
    They do not cover shared threads such as the garbage collector, or the commit that stores the cost.
    A second cost has only what the first one lacks.
    """

    def __init__(self, lake: Lake) -> None:
        self._context: Any = lake.spark.sparkContext
        self._group = uuid.uuid4().hex
        self.resume()
        self._reported_s = self._threads_s()

    def resume(self) -> None:
        """Count the Spark jobs that this thread starts from now on, after another meter has counted them."""
        self._context.setLocalProperty(GROUP, self._group)

    def of_round(
        self,
        main: Table,
        staged: Staged,
        dead_letters: Staged,
        *,
        plans: int = 0,
        read: int = 0,
        had_dead_letters: bool,
    ) -> dict[str, Any]:
        """The cost of the round, including the commit it is about to make, as metrics for `calve.metrics`.

        `plans`, `read`: plans and files that the index read. `had_dead_letters`: earlier rounds had dead letters.
        """
        asked = requests(
            _sizes(staged, dead_letters),
            _held(main),
            plans=plans,
            read=read,
            merge_at=_merge_at(main),
            kept=main.kept,
            deletes=staged.deletes is not None,
            dead_letters=bool(dead_letters.rows),
            had_dead_letters=had_dead_letters,
        )
        return self._cost(asked + Requests(puts=staged.discarded), staged, dead_letters)

    def of_work(self, table: Table, *staged: Staged, read: int = 0, all_read: bool = False) -> dict[str, Any]:
        """The cost of a commit that is not a round. read: files it has read, beside all of the table's files if `all_read`."""
        held = _held(table)
        read += held.files if all_read else 0
        asked = requests_of_work(_sizes(*staged), held, read=read, merge_at=_merge_at(table))
        return self._cost(asked, *staged)

    def _cost(self, asked: Requests, *staged: Staged) -> dict[str, Any]:
        before_s, self._reported_s = self._reported_s, self._threads_s() + self._tasks_s()
        cpu_s = self._reported_s - before_s + sum(each.cpu_s for each in staged)
        return asked.metrics() | {"bytes_written": sum(_sizes(*staged)), "cpu_s": round(cpu_s, 3)}

    def _threads_s(self) -> float:
        return time.thread_time() + float(_java_clock(self._context._gateway)()) / 1e9

    def _tasks_s(self) -> float:
        """CPU seconds of the tasks. Spark may have dropped some, in a job with very many tables."""
        spark, taken = self._context._jsc.sc(), 0
        store = spark.statusStore()
        for job in spark.statusTracker().getJobIdsForGroup(self._group):
            with suppress(Py4JJavaError):
                stages = store.job(job).stageIds()
                for stage in [int(stages.apply(at)) for at in range(stages.size())]:
                    with suppress(Py4JJavaError):
                        taken += store.lastStageAttempt(stage).executorCpuTime()
        return taken / 1e9


@cache
def _java_clock(gateway: Any) -> Callable[[], int]:
    """CPU nanoseconds of the JVM thread that answers the call."""
    java = gateway.jvm.java.lang
    bean, arguments = java.management.ManagementFactory.getThreadMXBean(), gateway.new_array(java.Object, 0)
    # py4j cannot reach the bean's own class, but it can reach its interface.
    clock = method(gateway, "java.lang.management.ThreadMXBean", "getCurrentThreadCpuTime")
    return lambda: clock.invoke(bean, arguments)


def _sizes(*staged: Staged) -> list[int]:
    files = (each for made in staged for each in (*made.files, *(made.deletes.files if made.deletes else ())))
    return [int(each.fileSizeInBytes()) for each in files]


def _held(table: Table) -> Held:
    head = table.snapshot(table.head) if table.head else None
    return Held.of(head.summary if head else {})


def _merge_at(table: Table) -> int:
    return int(table.properties.get(MERGE_AT, PROPERTIES[MERGE_AT]))
