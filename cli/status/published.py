"""How far tables are where they are published to, as the deployed publishers say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.account import Account, outputs
from cli.config import load_target
from cli.lake import aws_errors
from lambdas.publish_states import PublishStates

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from lambdas.publish_states import PublishState

DEPLOY = "deploy it: calve plan, then npx cdk deploy --all"


def published(config: Path, env: str | None, only: Collection[str] = ()) -> list[PublishState]:
    """The states by table and target, of all tables or of those named; none where nothing is published.

    Raises:
        CalveError: what publishes is not deployed, or cannot be asked.
    """
    deployment, embedded = load_target(config, env)
    if deployment.publish is None:
        return []
    account = Account.of(embedded, deployment.region)
    name = outputs(account, f"{deployment.name}-publish", fix=DEPLOY)["PublishStatesTable"]
    with aws_errors(f"the table {name}"):
        found = list(PublishStates(name, account.client("dynamodb")).all())
    return sorted(
        (each for each in found if not only or each.table.rpartition(".")[2] in only),
        key=lambda each: (each.table, each.target),
    )
