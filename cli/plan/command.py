"""`calve plan`: the configuration against what is deployed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, load_target
from cli.console import Branch, Console, Output, OutputOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.plan.changes import Change

SECTIONS = ("lake", "jobs", "tables", "exports")


def plan(
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what a deploy would change in the account; nothing is changed.

    + is new, ~ is changed, = is the same, - is deployed and no longer configured. Code is not compared: a deploy always
    brings that of this folder.
    """
    from cli.account import Account
    from cli.plan.account import read
    from cli.plan.changes import KINDS, changes

    console = Console(output)
    deployment, embedded = load_target(config, env)
    account = Account.of(embedded, deployment.region)
    number = account.id()
    found = changes(deployment, read(deployment, account))
    where = "the embedded stack" if embedded else f"account {number}, {account.region}"
    console.tree("plan", tree(deployment.name, where, found))
    counts = {word: sum(each.kind == kind for each in found) for kind, word in KINDS.items()}
    console.say(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    console.document(
        {
            "name": deployment.name,
            "account": number,
            "region": account.region,
            "embedded": embedded is not None,
            "changes": [asdict(each) for each in found],
        }
    )


def tree(name: str, where: str, found: Sequence[Change]) -> Branch:
    """The changes by section, each with its differences below it."""
    sections = [(section, [each for each in found if each.section == section]) for section in SECTIONS]
    return Branch(
        name,
        note=f"in {where}",
        below=[Branch(section, below=list(map(_branch, those))) for section, those in sections if those],
    )


def _branch(change: Change) -> Branch:
    width = max((len(each.key) for each in change.differences), default=0)
    below = [
        Branch("", note=f"{each.key.ljust(width)}  {each.deployed} -> {each.configured}")
        for each in change.differences
    ]
    return Branch(change.name, change.kind, change.note, below)
