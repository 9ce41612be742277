"""`make bench`, third part: rows per CPU second of each step, as a ratio to no step, for the same trades.

One topic, read by a job of one table at a time, each a process of its own, in turn and several times.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import statistics
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

from bench.cpu import Run
from bench.programs import figures, ingest
from calve.job import Aggregate, Job, Measure, Table
from calve.steps import Filter, Flatten, Lookup, Mask, Rule, Sql, Step
from cli.config import load_jobs
from cli.console import Console
from cli.datagen.plan import Plan
from cli.datagen.produce import Target, produce
from cli.datagen.records import SYMBOLS
from cli.embedded.layout import project_root
from cli.embedded.stack import Stack, running

NONE = "no step"
FLAGS = (
    "select *, case when price < 0 then 'NEGATIVE_PRICE' when quantity > 4000 then 'LARGE_TRADE'"
    " when price > 900 then 'UNUSUAL_PRICE' else 'NORMAL' end as anomaly_flag from source"
)
STEPS: dict[str, tuple[Step, ...]] = {
    NONE: (),
    "flatten": (Flatten(),),
    "filter": (Filter("price > 0"),),
    "sql: a product": (Sql("select *, cast(quantity as bigint) * price as total_price from source"),),
    "sql: flags": (Sql(FLAGS),),
    "lookup": (Lookup("symbols", {"symbol": "symbol"}, {"known": "trades"}),),
    "mask: partial": (Mask({"userid": Rule("partial", 4)}, key="keep", headers="keep"),),
    "mask: hash": (Mask({"userid": Rule("hash")}, key="keep", headers="keep"),),
    "mask: hash, and the key": (Mask({"userid": Rule("hash")}),),
}


def main(records: int, rounds: int) -> None:
    console, root, topic = Console(), project_root(), f"steps_{uuid.uuid4().hex[:8]}"
    os.environ["CALVE_BENCH_MASKING"] = json.dumps(
        {
            "keys": [
                {
                    "id": "bench",
                    "from": "2026-01-01T00:00:00Z",
                    "key": base64.b64encode(os.urandom(32)).decode(),
                }
            ]
        }
    )
    with running(root, console.progress()) as stack, tempfile.TemporaryDirectory() as folder:
        job = replace(load_jobs(root / "calve.yaml")[0], masking="env:CALVE_BENCH_MASKING")
        with console.progress().task(f"producing {records:,} trades", total=records, unit="records") as task:
            plan = Plan(topic=topic, count=records, seed=1)
            produce(plan, Target(job.kafka, job.registry, job.lake.region), task.update)
        totals = Aggregate(("symbol",), (Measure("trades", "count(*)"),))
        _run(job, Table("symbols", topic, aggregate=totals), stack, folder, records=len(SYMBOLS))
        spent: dict[str, list[float]] = {each: [] for each in STEPS}
        for number in range(1, rounds + 1):
            table = []
            for place, (name, steps) in enumerate(STEPS.items()):
                made = Table(f"{topic}_{place}_{number}", topic, steps=steps)
                result = _run(job, made, stack, folder, records=records)
                spent[name].append(result.cpu_s)
                table.append(figures(name, result, records))
            console.table(f"round {number}", table)
    ratios = {name: statistics.median(spent[NONE]) / statistics.median(each) for name, each in spent.items()}
    shown = {name: round(ratio, 2) for name, ratio in ratios.items()}
    console.panel("rows per CPU second, as a ratio to no step", shown)


def _run(job: Job, table: Table, stack: Stack, folder: str, *, records: int) -> Run:
    return ingest(replace(job, tables=(table,)), stack, Path(folder), records=records)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    main(options.records, options.rounds)
