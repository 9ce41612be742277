"""`calve demo`: all of calve once, on this machine, step by step."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as Iceberg

from calve.config.job import Job
from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import REASONS
from calve.settings import load
from cli import lake
from cli.conditions import Conditions
from cli.config import stack_defaults
from cli.console import Console
from cli.embedded import elsewhere
from cli.embedded.cdk import App
from cli.embedded.elsewhere import Elsewhere
from cli.embedded.layout import CHECKOUT, Layout, project_root
from cli.embedded.stack import Stack, current, running
from cli.kafka import Cluster
from cli.look.status.overview import snapshot_line
from cli.look.tables import facts
from cli.run.datagen.plan import Plan, in_turn
from cli.run.datagen.produce import Target, produce
from cli.run.demo import checks, sales
from cli.verify.findings import Verification

SALES = "examples/sales_channel/calve.yaml"
QUERY = "select symbol, count(*) from stock_trades group by all"
PUBLISHED = ".calve/demo/calve.yaml"

Keep = Annotated[bool, typer.Option("--keep", help="Leave the stack up, to look around.")]


def demo(*, keep: Keep = False) -> None:
    """Run all of calve on this machine, and check every count.

    The deploy, records, the job, its tables, two catalogs that follow, and the mailed export.

    Uses the stack that runs, or one that it starts and stops again; Ctrl-C leaves nothing behind. Exits with 1 where a count
    is not exact.

    Example:
      calve demo --keep
    """
    if not elsewhere.STAND_INS.is_dir():
        fix = "clone the whole repository; or try your own topic: calve up, then calve init"
        raise CalveError(
            f"the demo is part of a checkout of calve: {elsewhere.STAND_INS} is missing", fix=fix
        )
    console, root, began = Console(), project_root(), time.monotonic()
    console.say("calve keeps Kafka topics as Iceberg tables, exactly once. All of it, here:")
    console.heading("1  The stack: a Kafka broker, a schema registry, an AWS emulator")
    with running(root, console.progress(), keep=keep) as stack:
        try:
            wrong = run(stack, console)
        except (KeyboardInterrupt, SystemExit):
            console.event("interrupted: stopping what the demo started")
            raise
    if wrong:
        raise CalveError("not every count is exact:\n  " + "\n  ".join(wrong))
    left_up = current(root) is not None
    console.heading(f"Every count is exact. {time.monotonic() - began:.0f} s in all.")
    console.say(
        "The stack is still up." if left_up else "The stack is down again; of this run only the mail is left."
    )
    console.panel("Try next", _what_next(left_up=left_up))


def _what_next(*, left_up: bool) -> dict[str, str]:
    """Purpose -> a command that works from here: this program by its name if the shell finds it, else by its path."""
    called, calve = Path(sys.argv[0]), "calve"
    if called.name == "calve" and shutil.which("calve") != str(called):
        calve = str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)
    if not left_up:
        return {
            "again, and leave it up": f"{calve} demo --keep",
            "tables of your own Kafka": f"{calve} init -b HOST:PORT -c mine.yaml",
            "what else there is": f"{calve} --help",
        }
    return {
        "the health of the tables": f"{calve} status",
        "and of what is published": f"{calve} status -c {PUBLISHED}",
        "ask them": f'{calve} query "{QUERY}"',
        "one table from inside": f"{calve} tables stock_trades",
        "records with a new field": f"{calve} datagen stock_trades --evolve",
        "take them in": f"{calve} run-job trading-main --drain",
        "prove it again": f"{calve} verify stock_trades",
        "what was mailed": f"{calve} export list -c {SALES} --env aws",
        "what steps make of records": f"{calve} preview sales -c {SALES}",
        "tables of your own Kafka": f"{calve} init -b HOST:PORT -c mine.yaml",
        "stop the stack": f"{calve} down",
    }


WEEK = sales.last_week(datetime.now(UTC))
TRADES = Plan("stock_trades", 300_000, duplicates=0.01, malformed=in_turn(60), period=WEEK)
USERS = Plan("users", 10_000, dataset="users")
PLANS = (TRADES, USERS)
SAMPLE = 5
PYICEBERG, DUCKDB, VERIFY = "PyIceberg", "DuckDB", "verify"


def job_on(stack: Stack) -> Job:
    [job] = load(CHECKOUT / "calve.yaml", stack=stack_defaults(stack))
    return job


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan's table, its dead letters if any, and the offsets that this run produced."""

    table: Iceberg
    dead_letters: Iceberg | None
    spans: checks.Spans


def run(stack: Stack, console: Console) -> list[str]:
    """Run all steps and show them; return a sentence for each difference from the produced records."""
    job = job_on(stack)
    others = elsewhere.up(stack)
    states = _deploy(stack, job, others, console)
    spans = _produce(job, console)
    console.heading("4  The job, as deployed into Glue, here on local Spark")
    checks.ingested(stack, f"{job.name}-{job.job}", console, sum(plan.count for plan in PLANS))
    catalog = lake.open_catalog(job.lake)
    kept = {}
    for table in job.tables:
        name = job.table_name(table)
        dead_letters = lake.load(catalog, name.dead_letters)
        kept[table.topic] = Kept(checks.opened(catalog, name), dead_letters, spans[table.topic])
    _show(catalog, job, kept[TRADES.topic], console)
    console.heading("9  Verified: topics and tables read again, without Spark, and compared")
    proved = checks.verified(catalog, job, console)
    counts = _count(job, kept, proved, console)
    console.heading("11  Published: each commit was announced, and followed in both")
    counts += checks.count_published(
        stack, job, states, [each.table for each in kept.values()], others, console
    )
    wrong = [each.differs for each in counts if each.differs] + checks.unproved(proved)
    return wrong + sales.run(stack, console)


def _deploy(stack: Stack, job: Job, others: Elsewhere, console: Console) -> str:
    console.heading("2  Deployed: calve.yaml as AWS stacks, by the CDK CLI, as into an account")
    file = Layout(stack.root).demo / "calve.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{(CHECKOUT / 'calve.yaml').read_text()}\npublish: {json.dumps(others.publish)}\n")
    outputs = App(stack, file).deploy(console.progress())
    lake_of = outputs[f"{job.name}-lake"]
    console.say(
        f"{len(outputs)} stacks: {', '.join(outputs)}. The tables will lie in {lake_of['Warehouse']},"
        " and be published to an Iceberg REST catalog and a stand-in for Snowflake, which run here, too."
    )
    return outputs[f"{job.name}-publish"]["PublishStatesTable"]


def _produce(job: Job, console: Console) -> dict[str, checks.Spans]:
    fates = TRADES.fates()
    console.heading(f"3  Records: {TRADES.count:,} trades and {USERS.count:,} users")
    console.say(
        f"{fates.duplicates:,} trades repeat an earlier one, {sum(fates.dead_lettered.values())} are malformed"
        " in eight ways. Their timestamps are those of last week."
    )
    names = {plan.topic for plan in PLANS}
    cluster = Cluster(job.kafka, job.lake.region)
    before = cluster.topics(names)
    if held := ", ".join(sorted(name for name, topic in before.items() if any(topic.end.values()))):
        console.say(f"{held}: there are records already. They stay; the counts below are of this run.")
    target = Target(job.kafka, job.registry, job.lake.region)
    for plan in PLANS:
        with console.progress().task(f"producing {plan.topic}", total=plan.count, unit="records") as task:
            produce(plan, target, task.update)
    first = {name: topic.end for name, topic in before.items()}
    return {
        name: {p: (first.get(name, {}).get(p, 0), end) for p, end in topic.end.items()}
        for name, topic in cluster.topics(names).items()
    }


def _show(catalog: Catalog, job: Job, kept: Kept, console: Console) -> None:
    """All tables; then rows, snapshots and dead letters of one."""
    console.heading("5  The tables, in the emulator's Glue Data Catalog and S3")
    shown = ("table", "state", "rows", "files", "bytes", "dead_letters")
    [conditions], read = Conditions.of([job]), lake.Tables(catalog)
    tables = [facts(read, job.table_name(table), conditions)[1] for table in job.tables]
    console.table("tables", [{name: row[name] for name in shown} for row in tables], title="")
    console.heading("6  Some rows: the schema's fields, and from where in Kafka they come")
    rows = []
    for row in kept.table.scan(limit=SAMPLE).to_arrow().to_pylist():
        origin = row.pop(SYSTEM_COLUMN)
        rows.append(row | {name: origin[name] for name in ("partition", "offset")})
    console.table("row", rows, title="")
    console.heading("7  Snapshots: each accounts for every offset that it took in")
    lines = [snapshot_line(each) for each in lake.ancestors(kept.table)]
    for line in lines:
        for each in ("operation", "skipped", "filtered", "deduplicated", "deleted"):
            del line[each]
    console.table("snapshot", lines, title="")
    console.heading("8  Dead letters: records that failed to decode, kept byte for byte")
    found = lake.count_by(kept.dead_letters, "reason") if kept.dead_letters else {}
    rows = [{"reason": reason, "records": n, "meaning": REASONS.get(reason)} for reason, n in found.items()]
    console.table("dead letters", rows, title="")


def _count(
    job: Job, kept: dict[str, Kept], proved: dict[str, Verification], console: Console
) -> list[checks.Count]:
    """Compare the produced records with each reader's figures; total rows also by Iceberg's totals and by verify."""
    console.heading(f"10  Counted again by PyIceberg {version('pyiceberg')} and DuckDB {version('duckdb')}")
    counts: list[checks.Count] = []
    for plan in PLANS:
        here = kept[plan.topic]
        found = {
            PYICEBERG: checks.by_pyiceberg(here.table, here.dead_letters, here.spans),
            DUCKDB: checks.by_duckdb(here.table, here.dead_letters, here.spans, job.lake),
        }
        contents = [each.figures for each in proved[plan.topic].checks if each.name == "contents"]
        verified_rows = int(contents[0]["rows"]) if contents else 0
        total = {"Iceberg": lake.rows(here.table), VERIFY: verified_rows}
        counts += checks.counts_of(plan.topic, plan.fates(), found, total=total)
    lines = [{"table": each.table, **each.line((PYICEBERG, DUCKDB, VERIFY))} for each in counts]
    console.table("count", lines, title="")
    return counts
