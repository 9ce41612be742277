"""`calve plan`: the configuration against what is deployed, or a schema against a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from calve.config.deployment import Deployment
from calve.config.job import PartName
from calve.config.topics import PLACEHOLDER
from calve.errors import ConfigError
from calve.settings import read_source
from calve.settings.problems import Place, Problem, in_order, rows, shown
from cli.account import Account
from cli.config import Common, load_jobs, load_target
from cli.config import found as found_config
from cli.console import Branch, Console
from cli.embedded.stack import Stack
from cli.look.cost.command import RateOption
from cli.look.cost.model import Load, rates
from cli.project.plan.change import KINDS, Change
from cli.project.plan.changes import Bills, bills, changes
from cli.project.plan.checks import (
    consequences,
    index_warnings,
    problems,
    rights_warnings,
    schema_warnings,
    topic_problems,
    topic_warnings,
)
from cli.project.plan.deployed import Deployed, read_deployed
from cli.project.plan.fields_to_review import DECIDE, PERSONAL, lines, proposed, read_candidate, undecided
from cli.project.plan.fields_to_review import tree as candidate_tree
from cli.project.plan.survey import Survey, survey, with_engines

ALIKE = 3
CHANGED, BREAKING = 3, 4
"""2 is taken: for every command it means misuse or an invalid configuration."""
TableOption = Annotated[str | None, typer.Option("--table", help="A table, to try a schema on.")]
SchemaOption = Annotated[
    Path | None, typer.Option("--schema", help="A file that may become the next version.")
]
KeyOption = Annotated[bool, typer.Option("--key", help="The schema is one of the keys, not of the values.")]
ExitCodeOption = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode",
        help=f"Exit with {CHANGED} where a deploy would change something, with {BREAKING} where that breaks something.",
    ),
]
OfflineOption = Annotated[
    bool,
    typer.Option("--offline", help="Ask neither Kafka nor the registry; what they know is then not checked."),
]
SECTIONS = ("lake", "jobs", "tables", "exports", "publish")


def plan(
    table: TableOption = None,
    schema: SchemaOption = None,
    *,
    given: Common,
    key: KeyOption = False,
    offline: OfflineOption = False,
    topic_rate: RateOption = 1.0,
    detailed_exitcode: ExitCodeOption = False,
) -> None:
    """Show the changes of a deploy, their consequences, and every problem; change nothing.

    The cost of a month, before and after, is below the changes.

    + is new, ~ is changed, - is deployed and no longer configured; equal parts are counted. The mark ! is a consequence that
    breaks something for users of the deployment, ? a field that you should decide on. Below a table is the engine that makes its
    rows, and why not the columnar one. Code is not compared: a deploy always brings that of this folder.

    Below the changes is each problem with its line in calve.yaml and its fix. The topic may not exist, or the job would refuse
    it. The schemas may lack a column, or no table can hold them. A step may not run, or a change would suspend a table.

    Exits with 0 when all of it can work, and with 2 when the configuration is invalid. Exits with 1 when something cannot work or
    a system does not answer.

    With --table and --schema: what registering the schema would change in the table, or why the table refuses it, by path and
    rule. The exit code is then 0 or 1.

    Examples:
      calve plan --env prod
      calve plan --table stock_trades --schema stock_trades.v3.avsc
    """
    console = given.console
    if table and schema:
        candidate = read_candidate(schema)
        part: PartName = "key" if key else "value"
        found, to_review = proposed(
            load_jobs(given.config, given.env, tables=[table]), table, candidate, part
        )
        console.tree("plan", candidate_tree(f"{schema.name} -> {table}", lines(found), to_review))
        console.document(
            {
                "table": table,
                "schema": str(schema),
                "accepted": found.problem is None,
                "changes": lines(found),
                "undecided": to_review,
            }
        )
        code = 0 if found.problem is None else 1
    elif table or schema or key:
        raise ConfigError("--table and --schema go together")
    else:
        planned = Planned.of(given, topic_rate, offline=offline)
        planned.show(console)
        console.document(planned.document())
        code = exit_code(planned.changes) if detailed_exitcode else 0
        code = 1 if planned.problems else code
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Planned:
    """What a deploy would do. embedded: the stack that is its target; None: account `number`. skipped: what was not checked."""

    deployment: Deployment
    embedded: Stack | None
    account: Account
    number: str
    changes: Sequence[Change]
    cost: Bills
    topic_rate: float
    problems: Sequence[tuple[Place, Problem]]
    warnings: Sequence[tuple[Place, Problem]]
    skipped: Sequence[str]

    @classmethod
    def of(cls, given: Common, topic_rate: float = 1.0, *, offline: bool = False) -> Planned:
        deployment, embedded = load_target(given.config, given.env)
        if offline and deployment.lake.namespace == "cluster_id":
            raise ConfigError(
                "--offline cannot be used with `namespace: cluster_id`",
                fix="leave it out: Kafka names the database",
            )
        account = Account.of(embedded, deployment.region)
        number = account.id()
        deployed = read_deployed(deployment, account)
        surveyed = survey(deployment, deployed, offline=offline)
        made = {name: each.columns for name, each in surveyed.made.items()}
        to_review = undecided(surveyed.records, deployed.tables)
        found = [
            replace(each, undecided=to_review.get(each.name, ())) if each.section == "tables" else each
            for each in changes(surveyed.deployment, deployed, made)
        ]
        found = [*with_engines(found, surveyed.engines), *surveyed.entries]
        costs = bills(deployment, deployed, Load(topic_rate), rates())
        source = read_source(found_config(given.config), given.env)
        problems, warnings = map(source.placed, findings(surveyed, found, deployed))
        return cls(
            *(deployment, embedded, account, number, found, costs, topic_rate),
            *(list(problems), list(warnings), surveyed.skipped),
        )

    @property
    def where(self) -> str:
        return "the embedded stack" if self.embedded else f"account {self.number}, {self.account.region}"

    def show(self, console: Console) -> None:
        found = self.changes
        shown = folded(found) if console.is_terminal else found
        console.tree("plan", tree(self.deployment.name, self.where, shown, self.cost, self.topic_rate))
        console.problems("warning", rows(self.warnings))
        console.problems("problem", rows(self.problems))
        decide = [DECIDE] if any(PERSONAL in text for each in found for text in each.undecided) else []
        for sentence in (*decide, *self.skipped):
            console.say(sentence)
        console.say(counted(found, len(self.problems)))

    def document(self) -> dict[str, object]:
        return {
            "name": self.deployment.name,
            "account": self.number,
            "region": self.account.region,
            "embedded": self.embedded is not None,
            "problems": _documented(self.problems),
            "warnings": _documented(self.warnings),
            "skipped": self.skipped,
            "changes": [asdict(each) | {"breaking": each.breaking} for each in self.changes],
            "cost": asdict(self.cost) | {"topic_mb_s": self.topic_rate},
        }


def findings(
    surveyed: Survey, found: Sequence[Change], deployed: Deployed
) -> tuple[list[Problem], list[Problem]]:
    """Problems and warnings, each once for its place."""
    jobs = [job.settings for job in surveyed.deployment.jobs]
    entries = {table.name: table.pattern for job in jobs for table in job.tables if table.pattern}
    faults = [*surveyed.faults, *problems(surveyed, deployed.tables)]
    faults += consequences(found, entries)
    warnings = [*schema_warnings(surveyed.records), *rights_warnings(surveyed.deployment.lake)]
    if surveyed.listed is not None:
        faults += topic_problems(jobs, surveyed.listed)
        warnings += topic_warnings(jobs, surveyed.listed)
        warnings += index_warnings(surveyed.deployment.jobs, surveyed.held)
    return faults, warnings


def _documented(placed: Iterable[tuple[Place, Problem]]) -> list[dict[str, str | None]]:
    return [
        {"place": str(place), "path": shown(each.path), "reason": each.reason, "fix": each.fix}
        for place, each in in_order(placed)
    ]


def exit_code(found: Sequence[Change]) -> int:
    if any(each.breaking for each in found):
        return BREAKING
    return CHANGED if any(each.kind != "=" for each in found) else 0


def counted(found: Sequence[Change], problems: int = 0) -> str:
    """`1 new, 12 same`, and the number of breaking changes; entries with `topics` are counted by their tables."""
    plain = [each for each in found if PLACEHOLDER.search(each.name) is None]
    counts = [(sum(each.kind == kind for each in plain), word) for kind, word in KINDS.items()]
    counts.append((sum(each.breaking for each in plain), "breaking"))
    text = ", ".join(f"{count} {word}" for count, word in counts if count)
    count = "1 problem" if problems == 1 else f"{problems} problems"
    return f"{count}: this cannot work. {text}" if problems else text


def folded(found: Sequence[Change]) -> list[Change]:
    """The changes; tables of one entry with equal changes become one line, and those that only move from one job to another."""
    alike: dict[Change, list[Change]] = {}
    for each in found:
        moves = each.section == "tables" and [one.key for one in each.differences] == ["job"]
        alike.setdefault(replace(each, name="", note="") if each.entry or moves else each, []).append(each)
    lines = []
    for same in alike.values():
        if len(same) > ALIKE:
            names = ", ".join(each.name for each in same[:ALIKE])
            same = [replace(same[0], name=f"{names}, {len(same) - ALIKE} more", note="")]
        lines += same
    return lines


def tree(name: str, where: str, found: Sequence[Change], costs: Bills, topic_rate: float) -> Branch:
    """The changes by section, with differences and consequences below; and the monthly cost."""
    shown = [each for each in found if each.kind != "=" or each.undecided or each.note]
    entries = {each.name for each in found if each.entry is None and PLACEHOLDER.search(each.name)}
    tops = [each for each in shown if each.entry not in entries]
    below = [
        Branch(section, below=[_branch(each, shown) for each in tops if each.section == section])
        for section in SECTIONS
        if any(each.section == section for each in tops)
    ]
    return Branch(name, note=f"in {where}", below=[*below, _cost(costs, topic_rate)])


def _branch(change: Change, shown: Sequence[Change]) -> Branch:
    """One change with its details; below an entry with `topics` its tables."""
    width = max((len(each.key) for each in change.differences), default=0)
    below = [
        Branch("", note=f"{each.key.ljust(width)}  {each.deployed} -> {each.configured}")
        for each in change.differences
    ]
    below += [Branch("", "!" if each.breaking else "", each.text) for each in change.consequences]
    below += [Branch("", "?", each) for each in change.undecided]
    below += [_branch(each, ()) for each in shown if each.entry == change.name]
    engine = f"engine {change.engine}" if change.engine else ""
    if change.engine != "columnar" and engine:
        below.append(Branch("", note=engine))
        engine = ""
    return Branch(change.name, change.kind, ", ".join(filter(None, (change.note, engine))), below)


def _cost(costs: Bills, topic_rate: float) -> Branch:
    """US dollars a month: the parts that differ, and the total."""
    before, after = costs.before, costs.after
    total = f"{after:,.2f} US dollars a month, as now"
    if costs.parts:
        total = f"{before:,.2f} -> {after:,.2f} US dollars a month ({after - before:+,.2f})"
    below = [Branch("", note=f"{each.part}  {each.before:,.2f} -> {each.after:,.2f}") for each in costs.parts]
    below += [Branch("", "?", f"what job {each} costs now is not known") for each in costs.unknown]
    below.append(Branch("", note=f"all  {total}, at {topic_rate:g} MB/s a topic"))
    return Branch("cost", below=below)
