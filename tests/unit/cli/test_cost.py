"""The cost model is the one that docs/cost.md shows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from calve.deployment import Deployment, JobDeployment, LakeDeployment, Msk, Network, Workers
from calve.job import Job, Kafka, Lake, Registry, Table
from calve.settings import load_deployment
from calve.settings.schedules import firings_per_day
from cli.cost.model import DAYS, HOURS, Load, bill, dpus, vcpus
from cli.cost.rates import rates

PAGE = Path(__file__).parents[3] / "docs" / "cost.md"
RATES = rates()


def job(*, worker: str = "G.1X", workers: Workers = Workers(2, 4), topics: int = 1) -> JobDeployment:  # noqa: B008
    tables = tuple(Table(f"t{n}", f"t{n}") for n in range(topics))
    settings = Job("n", "main", Kafka("b:1"), Registry("http://r"), Lake("d", "s3://b"), tables)
    return JobDeployment(settings, worker, workers)


def of_glue(definition: JobDeployment, load: Load) -> tuple[float, float, list[str]]:
    found = bill(Deployment("n", (definition,), LakeDeployment("d")), load, RATES)
    return found.lines[0].continuous, found.lines[0].scheduled, found.warnings


def test_the_documented_example_is_recomputed(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert example
    path = tmp_path / "calve.yaml"
    path.write_text(example[1], encoding="utf-8")
    deployment, load = load_deployment(path), Load(1.0, 6, 1.0, "rate(6 hours)")
    found, idle = bill(deployment, load, RATES), bill(deployment, replace(load, topic_mb_s=0.0), RATES)
    rows = [(line.part, line.continuous, line.scheduled) for line in found.lines]
    rows += [("total", found.continuous, found.scheduled), ("with no data", idle.continuous, idle.scheduled)]
    computed = [
        f"| {part} | {always:,.2f} | {always / DAYS:,.2f} | {planned:,.2f} | {planned / DAYS:,.2f} |"
        for part, always, planned in rows
    ]
    assert re.findall(r"^\| (?!part|---).*$", text, re.MULTILINE) == computed


def test_the_smallest_job_costs_what_the_page_says() -> None:
    always, _, _ = of_glue(job(worker="G.025X", workers=Workers(2, 2)), Load(0.0))
    assert round(always) == 112
    assert "costs 112 dollars a month" in PAGE.read_text(encoding="utf-8")


def test_every_rate_has_a_source_and_a_date() -> None:
    for name, rate in RATES.by_name.items():
        assert rate.usd > 0, name
        assert rate.source, name
        assert re.fullmatch(r"20\d\d(-\d\d-\d\d)?", rate.date), name
        assert rate.checked != rate.source.startswith("from memory"), name


def test_a_job_that_always_runs_has_the_workers_that_its_load_needs() -> None:
    def always(mb_s: float) -> float:
        return of_glue(job(), Load(mb_s))[0] / (HOURS * RATES["glue_dpu_hour"])

    assert [round(always(mb_s), 6) for mb_s in (0, 20, 21, 41, 1000)] == [2, 2, 3, 4, 4]


def test_a_load_that_the_workers_cannot_carry_is_said() -> None:
    assert of_glue(job(), Load(59.0))[2] == []
    (warning,) = of_glue(job(), Load(61.0))[2]
    assert warning == "job main: 61 MB/s need 5 workers, and `workers.max` is 4"


def test_a_schedule_costs_its_starts_and_its_reading() -> None:
    _, idle, _ = of_glue(job(), Load(0.0, schedule="rate(1 day)"))
    assert idle == pytest.approx(4 * DAYS * 120 / 3600 * RATES["glue_dpu_hour"])
    _, reading, _ = of_glue(job(), Load(6.0, schedule="rate(1 day)"))
    assert reading - idle == pytest.approx(4 * HOURS * 6 / 60 * RATES["glue_dpu_hour"])


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


def test_each_export_has_an_alarm_of_its_own(tmp_path: Path) -> None:
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
    assert counts[1] - counts[0] == 2
