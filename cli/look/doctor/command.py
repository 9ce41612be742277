"""`calve doctor`: every check as a row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption
from cli.console import Console, Output, OutputOption
from cli.profile import is_named
from lambdas.doctor.finding import Finding

RemoteOption = Annotated[
    bool,
    typer.Option("--remote", help="Look from where the jobs stand, too, by a function of the deployment."),
]


def doctor(
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
    *,
    remote: RemoteOption = False,
) -> None:
    """Check this machine, and the systems of the configuration; every fault comes with its cure.

    Nothing is changed, and no secret is shown. With --remote, what a laptop cannot reach is looked at in AWS.

    Exits with 1 when a check fails.

    Example:
      calve doctor --remote
    """
    from cli.embedded.layout import project_root
    from cli.look.doctor.deployment import of_deployment
    from cli.look.doctor.machine import probes
    from lambdas.doctor.finding import examine

    console = Console(output)
    found = [
        *examine(probes(project_root(), embedded=not is_named())),
        *of_deployment(config, env, remote=remote),
    ]
    console.table("calve doctor", [_row(each) for each in found])
    console.document([_row(each) for each in found])
    if any(each.state == "fail" for each in found):
        raise typer.Exit(1)


def _row(finding: Finding) -> dict[str, str]:
    row = asdict(finding)
    seen_from = row.pop("seen_from")
    return {"check": row.pop("check"), "from": seen_from, **row}
