"""How far tables are where they are published to, as the deployed publishers say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.errors import CalveError
from cli.account import Account, outputs
from cli.config import load_target
from cli.lake import aws_errors
from lambdas.publish_states import PublishStates

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from cli.console import Console
    from lambdas.publish_states import PublishState

DEPLOY = "deploy it: calve plan, then npx cdk deploy --all"


def published(
    config: Path, env: str | None, console: Console, only: Collection[str] = ()
) -> list[PublishState]:
    """The states by table and target, of all tables or of those named; what keeps them from being read is said, no more."""
    deployment, embedded = load_target(config, env)
    if deployment.publish is None:
        return []
    try:
        account = Account.of(embedded, deployment.region)
        name = outputs(account, f"{deployment.name}-publish", fix=DEPLOY)["PublishStatesTable"]
        with aws_errors(f"the table {name}"):
            found = list(PublishStates(name, account.client("dynamodb")).all())
    except CalveError as error:
        console.error(error)
        return []
    return sorted(
        (each for each in found if not only or each.table.rpartition(".")[2] in only),
        key=lambda each: (each.table, each.target),
    )
