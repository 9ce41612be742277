"""`make bench`: CPU seconds per million records of `calve ingest`, as a ratio to a bare Spark program on the same topic.

Both run alternately as processes of their own, JVM start included, on the embedded stack; each table is counted before its
figure counts. Ratios hold on a busy machine better than seconds do; `other` says how busy it was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

from bench.cpu import Run
from bench.programs import figures, ingest, measured
from calve.job import Job, Table
from cli.config import load_jobs
from cli.console import Console
from cli.datagen.plan import Plan
from cli.datagen.produce import Target, produce
from cli.embedded.layout import project_root
from cli.embedded.stack import Stack, running
from cli.kafka import Cluster

GOAL = 1.15


def main(records: int, rounds: int) -> int:
    console = Console()
    root = project_root()
    with running(root, console.progress()) as stack, tempfile.TemporaryDirectory() as folder:
        name = f"bench_{uuid.uuid4().hex[:8]}"
        job = replace(load_jobs(root / "calve.yaml")[0], tables=(Table(name=name, topic=name),))
        with console.progress().task(f"producing {records:,} trades", total=records, unit="records") as task:
            plan = Plan(topic=name, count=records, seed=1)
            produce(plan, Target(job.kafka, job.registry, job.lake.region), task.update)
        ratios = [
            _round(console, job, stack, records, number, Path(folder)) for number in range(1, rounds + 1)
        ]
    median = statistics.median(ratios)
    verdict = {
        "ratio, median": round(median, 3),
        "min": round(min(ratios), 3),
        "max": round(max(ratios), 3),
        "goal": GOAL,
    }
    console.panel("CPU of calve ingest / CPU of bare Spark", verdict)
    return 0 if median <= GOAL else 1


def _round(console: Console, job: Job, stack: Stack, records: int, number: int, folder: Path) -> float:
    """Both programs once, each into a new table; calve first in odd rounds."""
    topic = job.tables[0].topic
    ours, bare = f"{topic}_calve_{number}", f"{topic}_bare_{number}"
    mine = replace(job, tables=(replace(job.tables[0], name=ours),))
    results: dict[str, Run] = {}
    for who in ("calve", "bare") if number % 2 else ("bare", "calve"):
        if who == "calve":
            results[who] = ingest(mine, stack, folder, records=records)
        else:
            command = [sys.executable, "-m", "bench.bare", str(folder / "bare.json"), bare, _ends(job, topic)]
            (folder / "bare.json").write_text(job.to_json())
            results[who] = measured(command, job, stack, bare, records=records)
    console.table(f"round {number}", [figures(who, result, records) for who, result in results.items()])
    return results["calve"].cpu_s / results["bare"].cpu_s


def _ends(job: Job, topic: str) -> str:
    ends = Cluster(job.kafka, job.lake.region).topics({topic})[topic].end
    return json.dumps({str(p): o for p, o in sorted(ends.items())})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sys.exit(main(options.records, options.rounds))
