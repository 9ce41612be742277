"""The cost model is the one that docs/cost.md shows."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from fastavro import parse_schema
from typer.testing import CliRunner

from calve.config.deployment import (
    Deployment,
    JobDeployment,
    LakeDeployment,
    Msk,
    Network,
    Workers,
)
from calve.config.job import Job, Kafka, Lake, Registry, Table
from calve.settings import load_deployment
from calve.settings.resolving import StackDefaults
from calve.settings.schedules import firings_per_day
from cli.look.cost.model import (
    CPU_S_PER_MILLION,
    DAYS,
    ENDPOINTS,
    HOURS,
    RECORD_BYTES,
    VCPU_MB_S,
    ZONES,
    Load,
    assumptions,
    bill,
    dpus,
    rates,
    totals,
    vcpus,
)
from cli.main import app
from cli.run.datagen.plan import Plan, blocks
from cli.run.datagen.produce import Encoder, rows, schema_text

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "cost.md"
RATES = rates()
IDLE = Load(topic_mb_s=0.0)


def job(*, worker: str = "G.1X", workers: Workers = Workers(2, 4), topics: int = 1) -> JobDeployment:  # noqa: B008
    tables = tuple(Table(f"t{n}", f"t{n}") for n in range(topics))
    settings = Job("n", "main", Kafka("b:1"), Registry("http://r"), Lake("d", "s3://b"), tables)
    return JobDeployment(settings, worker, workers)


def of_glue(definition: JobDeployment, load: Load) -> tuple[float, float, list[str]]:
    found = bill(Deployment("n", (definition,), LakeDeployment("d")), load, RATES)
    return found.lines[0].continuous, found.lines[0].scheduled, found.warnings


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The configuration of the page, in a file."""
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    path = tmp_path / "calve.yaml"
    path.write_text(found[1], encoding="utf-8")
    return path


def test_the_documented_example_is_recomputed(example: Path) -> None:
    deployment, load = load_deployment(example), Load(1.0, 6, 1.0, "rate(6 hours)")
    total = bill(deployment, load, RATES)
    ways = totals(total, bill(deployment, replace(load, topic_mb_s=0.0), RATES))
    computed = [
        "| {jobs} | {month:,.2f} | {day:,.2f} | {idle_month:,.2f} | {idle_day:,.2f} |".format(**way)
        for way in ways
    ]
    computed += [f"| {line.part} | {line.continuous:,.2f} | {line.scheduled:,.2f} |" for line in total.lines]
    text = PAGE.read_text(encoding="utf-8").partition("## Throughput")[0]
    assert re.findall(r"^\| (?!part|jobs|---).*$", text, re.MULTILINE) == computed


def test_what_the_pages_say_of_costs_is_recomputed() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    anywhere = StackDefaults(Kafka("anywhere:9092"), Registry("https://anywhere"))
    least = bill(load_deployment(ROOT / "calve.yaml", None, anywhere), IDLE, RATES)
    always, scheduled = (month / DAYS for month in (least.total("continuous"), least.total("scheduled")))
    assert f"are {always:.2f} dollars a day with the job always running, and {scheduled:.2f} with" in readme
    page = " ".join((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").split())
    endpoints = ENDPOINTS * ZONES * 24 * RATES["endpoint_hour"]
    assert f"five in two zones, {endpoints:.2f} dollars a day" in page
    assert f"MSK Serverless costs {24 * RATES['msk_cluster_hour']:.0f} dollars a day" in page


def test_the_throughput_of_a_vcpu_is_no_more_than_was_measured() -> None:
    trades = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").partition("## trades\n")[2]
    measured = re.search(r"^\| calve, row engine \| ([\d,]+) ", trades, re.MULTILINE)
    assert measured is not None
    assert 1000 / float(measured[1].replace(",", "")) <= CPU_S_PER_MILLION
    plan = Plan(topic="t", count=10_000, seed=1)
    encoder = Encoder(bytes(5), parse_schema(json.loads(schema_text("stock_trades"))))
    sizes = [
        len(row["userid"]) + len(encoder.encode(row)) for block in blocks(plan) for row in rows(plan, block)
    ]
    assert round(statistics.mean(sizes)) == RECORD_BYTES
    said = f"{VCPU_MB_S:.1f} MB/s: {CPU_S_PER_MILLION} CPU seconds per million trades of {RECORD_BYTES} bytes"
    assert said in PAGE.read_text(encoding="utf-8")


def test_the_smallest_job_costs_what_the_page_says() -> None:
    always, _, _ = of_glue(job(worker="G.025X", workers=Workers(2, 2)), Load(0.0))
    assert round(always) == 112
    assert "costs 112 dollars a month" in PAGE.read_text(encoding="utf-8")


def test_every_rate_has_a_source_and_a_date() -> None:
    for name, rate in RATES.by_name.items():
        assert rate.usd > 0, name
        assert rate.source, name
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", rate.date), name


def test_what_is_said_fits_80_columns() -> None:
    assert max(len(f"  {each}") for each in assumptions(Load())) <= 80
    assert max(len(f"├── {rate.source}, {rate.date}") for rate in RATES.by_name.values()) <= 80
    assert max(len(f"│   ├── {rate.usd:.10f}  {rate.per}") for rate in RATES.by_name.values()) <= 80


def test_the_answer_of_the_command_has_every_rate_that_it_used(example: Path) -> None:
    result = CliRunner().invoke(app, ["cost", "--config", str(example), "--output", "json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert [way["jobs"] for way in answer["totals"]] == [
        "as configured",
        "every job always",
        "every job scheduled",
    ]
    assert set(answer["rates"]) == {name for line in answer["lines"] for name in line["rates"]}
    shown = CliRunner().invoke(app, ["cost", "--config", str(example)]).stdout
    for rate in answer["rates"].values():
        assert f"{rate['source']}, {rate['date']}" in shown
        assert rate["per"] in shown


def test_jobs_as_configured_cost_what_each_costs_in_its_way() -> None:
    always = job(workers=Workers(2, 2))
    nightly = replace(always, settings=replace(always.settings, job="nightly"), schedule="rate(1 day)")
    found = bill(Deployment("n", (always, nightly), LakeDeployment("d")), Load(), RATES)
    first, second = found.lines[:2]
    assert (first.configured, second.configured) == (first.continuous, second.scheduled)
    assert found.total("scheduled") < found.total("configured") < found.total("continuous")
    requests = next(line for line in found.lines if line.part == "S3 requests")
    assert requests.scheduled < requests.configured < requests.continuous


def test_what_msk_keeps_is_limited_by_time_and_by_size() -> None:
    deployment = Deployment("n", (job(),), LakeDeployment("d"), msk=Msk())

    def kept(mb_s: float) -> float:
        (line,) = [
            each for each in bill(deployment, Load(mb_s), RATES).lines if each.part == "MSK Serverless"
        ]
        return float(line.basis.split()[-2].replace(",", ""))

    assert [kept(mb_s) for mb_s in (1, 2, 100)] == [563, 1127, 6 * 250]


def test_a_job_that_always_runs_has_the_workers_that_its_load_needs() -> None:
    def always(mb_s: float) -> float:
        return of_glue(job(), Load(mb_s))[0] / (HOURS * RATES["glue_dpu_hour"])

    assert [round(always(mb_s), 6) for mb_s in (0, 16, 17, 33, 1000)] == [2, 2, 3, 4, 4]


def test_a_load_that_the_workers_cannot_carry_is_said() -> None:
    assert of_glue(job(), Load(48.0))[2] == []
    (warning,) = of_glue(job(), Load(49.0))[2]
    assert warning == "job main: 49 MB/s need 5 workers, and `workers.max` is 4"


def test_a_schedule_costs_its_starts_and_its_reading() -> None:
    _, idle, _ = of_glue(job(), Load(0.0, schedule="rate(1 day)"))
    assert idle == pytest.approx(4 * DAYS * 120 / 3600 * RATES["glue_dpu_hour"])
    _, reading, _ = of_glue(job(), Load(6.0, schedule="rate(1 day)"))
    assert reading - idle == pytest.approx(4 * HOURS * 6 / (3 * 4 * VCPU_MB_S) * RATES["glue_dpu_hour"])


def test_a_schedule_never_costs_more_than_the_whole_month() -> None:
    always, by_schedule, (warning,) = of_glue(
        job(workers=Workers(4, 4)), Load(1.0, schedule="rate(1 minute)")
    )
    assert by_schedule == always
    assert "a run begins before the one before it has ended" in warning


def test_what_exists_already_is_not_in_the_bill() -> None:
    made = Deployment("n", (job(),), LakeDeployment("d"), msk=Msk(), network=Network())
    existing = Deployment(
        "n", (job(),), LakeDeployment("d", bucket="b"), msk=Msk("arn:x"), network=Network("vpc-1", ("a", "b"))
    )
    parts = [{line.part for line in bill(each, Load(), RATES).lines} for each in (made, existing)]
    assert parts[0] - parts[1] == {"KMS key", "MSK Serverless", "VPC endpoints"}


@pytest.mark.parametrize(
    ("schedule", "per_day"),
    [
        ("rate(1 day)", 1.0),
        ("rate(6 hours)", 4.0),
        ("rate(5 minutes)", 288.0),
        ("cron(0 6 ? * MON *)", 1 / 7),
        ("cron(0 6 ? * MON-FRI *)", 5 / 7),
        ("cron(0 */6 * * ? *)", 4.0),
        ("cron(0/15 8-17 ? * 2,4 *)", 4 * 10 * 2 / 7),
        ("cron(0 6 1 * ? *)", 12 / 365.2425),
        ("cron(0 6 L * ? *)", 12 / 365.2425),
        ("cron(0 6 ? * 2#1 *)", 12 / 365.2425),
        ("cron(0 6 * JAN-MAR ? *)", 3 / 12),
    ],
)
def test_firings_are_counted(schedule: str, per_day: float) -> None:
    assert firings_per_day(schedule) == pytest.approx(per_day)


def test_a_worker_has_its_size_in_its_name() -> None:
    assert [dpus(each) for each in ("G.025X", "G.1X", "G.16X", "R.4X")] == [0.25, 1, 16, 4]
    assert [vcpus(each) for each in ("G.025X", "G.1X", "R.2X")] == [2, 4, 8]


def test_each_export_has_two_alarms_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "calve.yaml"
    start = (
        "name: t\nkafka: {bootstrap_servers: 'b:1'}\nregistry: {url: https://r}\ntables: {a: {topic: t}}\n"
    )
    one = "{table: a, schedule: rate(1 day), window: previous_day, recipients: [a@example.com]}"
    counts = []
    for names in ("x", "xyz"):
        path.write_text(start + "exports: {" + ", ".join(f"{name}: {one}" for name in names) + "}")
        lines = bill(load_deployment(path), Load(), RATES).lines
        (basis,) = [line.basis for line in lines if line.part == "Monitoring"]
        counts.append(int(basis.split()[0]))
    assert counts[1] - counts[0] == 2 * 2
