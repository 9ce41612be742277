"""`calve cost`: what a month and a day of a configuration cost, and what its tables cost so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from calve.config.job import Kafka, Registry
from calve.settings import load_deployment
from calve.settings.problems import Invalid
from calve.settings.resolving import StackDefaults
from calve.settings.schedules import expression
from cli.config import Common, found, load_jobs
from cli.console import Branch
from cli.look.cost.measured import measured_costs
from cli.look.cost.model import Load, Rate, assumptions, bill, rates, totals

RateOption = Annotated[float, typer.Option("--topic-rate", min=0, help="MB/s that arrive in each topic.")]
PartitionsOption = Annotated[int, typer.Option("--partitions", min=1, help="Partitions of each topic.")]
KeptOption = Annotated[float, typer.Option("--kept-months", min=0, help="Months that tables keep.")]
MeasuredOption = Annotated[
    bool, typer.Option("--measured", help="Show, too, what the commits of the tables have taken so far.")
]
ScheduleOption = Annotated[
    str, typer.Option("--schedule", help="When a job that has no schedule would run if it had one.")
]


def cost(
    topic_rate: RateOption = 1.0,
    partitions: PartitionsOption = 6,
    kept_months: KeptOption = 1.0,
    schedule: ScheduleOption = "rate(6 hours)",
    *,
    given: Common,
    measured: MeasuredOption = False,
) -> None:
    """Estimate what the configuration costs in AWS, with jobs that always run and with jobs that run by a schedule.

    Without --measured no request goes to AWS. Each rate, with source and date, is in cli/look/cost/rates.json.

    Example:
      calve cost --topic-rate 2.5 --kept-months 12
    """
    anywhere = StackDefaults(Kafka("anywhere:9092"), Registry("https://anywhere"))
    deployment = load_deployment(found(given.config), given.env, anywhere)
    try:
        load = Load(topic_rate, partitions, kept_months, expression(schedule))
    except Invalid as invalid:
        (problem,) = invalid.problems
        raise typer.BadParameter(f"{problem.reason}. {problem.fix}", param_hint="--schedule") from None
    known = rates()
    total, idle = bill(deployment, load, known), bill(deployment, replace(load, topic_mb_s=0.0), known)
    console = given.console
    ways = totals(total, idle)
    console.table("cost", ways, title=f"{deployment.name} in {known.region}, US dollars")
    for warning in total.warnings:
        console.event("too little", reason=warning)
    console.heading("Parts, US dollars a month")
    parts = [
        {"part": line.part, "always": line.continuous, "scheduled": line.scheduled, "how": line.basis}
        for line in total.lines
    ]
    console.table("part", parts, title="")
    tables: list[dict[str, Any]] = []
    if measured:
        tables = [each.document for each in measured_costs(load_jobs(given.config, given.env), known)]
        console.heading("Measured, by the commits that the tables still know")
        console.table("measured", tables, title="")
    console.heading("Assumptions")
    for each in assumptions(load):
        console.say(f"  {each}")
    used = {name: known.by_name[name] for line in total.lines for name in line.rates}
    console.heading("Rates, by source and date")
    console.tree("rate", _by_source(known.region, used.values()))
    console.document(
        {
            "region": known.region,
            "load": asdict(load),
            "lines": [asdict(line) for line in total.lines],
            "totals": ways,
            "measured": tables,
            "warnings": total.warnings,
            "assumptions": assumptions(load),
            "rates": {name: asdict(rate) for name, rate in used.items()},
        }
    )


def _by_source(region: str, used: Iterable[Rate]) -> Branch:
    """The rates as a tree, each below the source that it was read in."""
    sources: dict[str, list[Branch]] = {}
    for rate in used:
        usd = f"{rate.usd:.10f}".rstrip("0").rstrip(".")
        sources.setdefault(f"{rate.source}, {rate.date}", []).append(Branch(usd, note=rate.per))
    return Branch(
        f"US dollars in {region}", below=[Branch(source, below=rates) for source, rates in sources.items()]
    )
