"""`python -m bench.programs.calve_job SETTINGS [together]`: calve's ingest job drains the topics of its tables in turn.

Each table is a run of `glue_jobs.ingest`, as `calve ingest --drain` does it; all are in one process, so that the first one shows
what a start costs and the others do not. `together`: all tables are one lap.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

from bench.programs.marks import LAP, READY, mark
from calve.config.job import Job
from glue_jobs.ingest import run
from glue_jobs.process.session import spark_session


def main(settings: Path, *, together: bool) -> None:
    job = Job.from_json(settings.read_text())
    spark = spark_session(job)
    mark(READY)
    for tables in [job.tables] if together else [(each,) for each in job.tables]:
        states = run(replace(job, tables=tables), drain=True, stop=threading.Event())
        mark(LAP, states=list(states.values()))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), together="together" in sys.argv[2:])
