"""`calve plan`: the configuration against what is deployed, or a schema against a table."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import CalveError, ConfigError, Retryable
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, load_target
from cli.console import Branch, Console, Output, OutputOption
from cli.cost.command import RateOption
from cli.plan.change import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from calve.deployment import Deployment
    from calve.job import PartName
    from cli.plan.bill import Bills
    from cli.plan.change import Change
    from cli.plan.deployed import Deployed
    from cli.plan.steps import Foreseen

CHANGED, BREAKING = 3, 4
"""2 is taken: as of every command, it says that it was misused, or its configuration cannot be used."""
TableOption = Annotated[
    str | None, typer.Option("--table", help="A table, to try a schema on.", show_default=False)
]
SchemaOption = Annotated[
    Path | None,
    typer.Option("--schema", help="A file that may become the next version.", show_default=False),
]
KeyOption = Annotated[bool, typer.Option("--key", help="The schema is one of the keys, not of the values.")]
ExitCodeOption = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode",
        help=f"Exit with {CHANGED} where a deploy would change something, with {BREAKING} where that breaks something.",
    ),
]
SECTIONS = ("lake", "jobs", "tables", "exports", "publish")


def plan(
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
    table: TableOption = None,
    schema: SchemaOption = None,
    *,
    key: KeyOption = False,
    topic_rate: RateOption = 1.0,
    detailed_exitcode: ExitCodeOption = False,
) -> None:
    """Show what a deploy would change, and what follows; nothing is changed.

    What a month costs, before and after, stands below the changes.

    + is new, ~ is changed, - is deployed and no longer configured; what is the same is counted. ! is a consequence that breaks
    something for those who use what is deployed, ? a field that somebody should decide on. Below a table stands the engine that
    makes its rows, and why not the columnar one. Code is not compared: a deploy always brings that of this folder. The steps of
    tables are tried on the schemas that are registered now; the exit code is 1 where one of them cannot be run.

    With --table and --schema: what registering the schema would change in the table, or why the table refuses it, by path and
    rule. The exit code is then 0 or 1.

    Examples:
      calve plan --env prod
      calve plan --table stock_trades --schema stock_trades.v3.avsc
    """
    console = Console(output)
    if table and schema:
        code = 0 if _plan_schema(console, config, env, table, schema, "key" if key else "value") else 1
    elif table or schema or key:
        raise ConfigError("--table and --schema go together")
    else:
        code = _plan_deploy(console, config, env, topic_rate, detailed=detailed_exitcode)
    if code:
        raise typer.Exit(code)


def _plan_schema(
    console: Console, config: Path, env: str | None, table: str, schema: Path, part: PartName
) -> bool:
    """Show what a schema would change in a table; False where the table refuses it."""
    from cli.config import load_jobs
    from cli.plan.candidate import lines, proposed, read_candidate
    from cli.plan.candidate import tree as candidate_tree

    candidate = read_candidate(schema)
    found, undecided = proposed(load_jobs(config, env, tables=[table]), table, candidate, part)
    accepted = found.problem is None
    console.tree("plan", candidate_tree(f"{schema.name} -> {table}", lines(found), undecided))
    console.document(
        {
            "table": table,
            "schema": str(schema),
            "accepted": accepted,
            "changes": [asdict(each) for each in lines(found)],
            "undecided": undecided,
        }
    )
    return accepted


def _plan_deploy(
    console: Console, config: Path, env: str | None, topic_rate: float, *, detailed: bool
) -> int:
    """Show what a deploy would change; the exit code."""
    from cli.account import Account
    from cli.cost.model import Load
    from cli.cost.rates import rates
    from cli.plan.account import read
    from cli.plan.bill import bills
    from cli.plan.changes import changes
    from cli.plan.topics import expanded

    deployment, embedded = load_target(config, env)
    account = Account.of(embedded, deployment.region)
    number = account.id()
    deployed = read(deployment, account)
    whole = expanded(deployment, deployed)
    foreseen = _made_by_steps(whole.deployment)
    made = {name: each.columns for name, each in foreseen.items()}
    by_rows = {name: each.by_rows for name, each in foreseen.items()}
    found, unasked = with_findings(
        changes(whole.deployment, deployed, made), whole.deployment, deployed, by_rows
    )
    found = [*found, *whole.entries]
    costs = bills(deployment, deployed, Load(topic_rate), rates())
    where = "the embedded stack" if embedded else f"account {number}, {account.region}"
    console.tree("plan", tree(deployment.name, where, found, costs, topic_rate))
    console.say(counted(found))
    for told in filter(None, (unasked, whole.unasked)):
        console.say(told)
    console.document(
        {
            "name": deployment.name,
            "account": number,
            "region": account.region,
            "embedded": embedded is not None,
            "changes": [asdict(each) | {"breaking": each.breaking} for each in found],
            "cost": asdict(costs) | {"topic_mb_s": topic_rate},
        }
    )
    if any(isinstance(each, CalveError) and not isinstance(each, Retryable) for each in made.values()):
        return 1
    return exit_code(found) if detailed else 0


def exit_code(found: Sequence[Change]) -> int:
    if any(each.breaking for each in found):
        return BREAKING
    return CHANGED if any(each.kind != "=" for each in found) else 0


def counted(found: Sequence[Change]) -> str:
    """`1 new, 12 same`, and how many break something."""
    counts = [(sum(each.kind == kind for each in found), word) for kind, word in KINDS.items()]
    counts.append((sum(each.breaking for each in found), "breaking"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def with_findings(
    found: Sequence[Change],
    deployment: Deployment,
    deployed: Deployed,
    by_rows: Mapping[str, tuple[str, ...]],
) -> tuple[list[Change], str | None]:
    """The changes with the engine of each table and what is to be decided on in it; or without, and why.

    by_rows: why tables with steps are not made by the columnar engine.
    """
    from cli.plan.engines import engines, with_engines
    from cli.plan.undecided import undecided

    jobs = [job.settings for job in deployment.jobs]
    try:
        told, by = undecided(jobs, deployed.tables), engines(jobs, by_rows)
    except CalveError as problem:
        return list(found), f"neither personal data nor engines of tables were looked for: {problem.message}"
    found = [
        replace(each, undecided=told.get(each.name, ())) if each.section == "tables" else each
        for each in found
    ]
    return with_engines(found, by), None


def _made_by_steps(deployment: Deployment) -> dict[str, Foreseen]:
    """What steps make now, asked of Spark: only where a table has some."""
    found: dict[str, Foreseen] = {}
    jobs = [job.settings for job in deployment.jobs if any(each.steps for each in job.settings.tables)]
    if not jobs:
        return found
    from cli.plan.steps import made_by_steps
    from cli.spark import local_session

    with local_session(jobs[0]) as spark:
        for job in jobs:
            found = {**found, **made_by_steps(spark, job)}
    return found


def tree(name: str, where: str, found: Sequence[Change], costs: Bills, topic_rate: float) -> Branch:
    """What changes, by section, with its differences and consequences below it; and what a month costs."""
    sections = [(section, [each for each in found if each.section == section]) for section in SECTIONS]
    shown = [(section, [each for each in those if _is_shown(each)]) for section, those in sections]
    below = [Branch(section, below=list(map(_branch, those))) for section, those in shown if those]
    return Branch(name, note=f"in {where}", below=[*below, _cost(costs, topic_rate)])


def _is_shown(change: Change) -> bool:
    return change.kind != "=" or bool(change.undecided or change.note)


def _branch(change: Change) -> Branch:
    width = max((len(each.key) for each in change.differences), default=0)
    below = [
        Branch("", note=f"{each.key.ljust(width)}  {each.deployed} -> {each.configured}")
        for each in change.differences
    ]
    below += [Branch("", "!" if each.breaking else "", each.text) for each in change.consequences]
    below += [Branch("", "?", each) for each in change.undecided]
    below += [Branch("", note=f"engine {change.engine}")] if change.engine else []
    return Branch(change.name, change.kind, change.note, below)


def _cost(costs: Bills, topic_rate: float) -> Branch:
    """Dollars a month: the parts that differ, and all of them."""
    changed = (
        f"{costs.before:,.2f} -> {costs.after:,.2f} US dollars a month ({costs.after - costs.before:+,.2f})"
    )
    same = f"{costs.after:,.2f} US dollars a month, as now"
    below = [Branch("", note=f"{each.part}  {each.before:,.2f} -> {each.after:,.2f}") for each in costs.parts]
    below += [Branch("", "?", f"what job {each} costs now is not known") for each in costs.unknown]
    total = f"all  {changed if costs.parts else same}, at {topic_rate:g} MB/s a topic"
    return Branch("cost", below=[*below, Branch("", note=total)])
