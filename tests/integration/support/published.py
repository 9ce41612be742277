"""A deployment that publishes tables, in the emulator: its stacks, its states, its functions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from calve.outputs.announcement import COMMITTED, SOURCE
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.main import app as calve
from cli.progress import LineProgress
from lambdas.publish_states import PublishState, PublishStates, State, Target
from tests.integration.support.servers.rest_catalogs import Tables

PROGRESS = LineProgress(lambda line: print(line, file=sys.__stderr__, flush=True))
CONFIG = """\
name: {name}
lake: {{bucket: {bucket}, prefix: published, database: {database}, import_database: true}}
tables:
  trades: {{topic: trades}}
{more}
publish: {publish}
"""


class Deployed:
    """The stacks of one configuration. publish: its section; NAME in it is the deployment's name."""

    def __init__(self, published: Tables, folder: Path, publish: dict[str, Any]) -> None:
        self.published = published
        self.name = published.database.replace("_", "-")
        self.config = folder / "calve.yaml"
        self.publish = json.dumps(publish).replace("NAME", self.name)
        self.targets = [*map(Target, publish)]

    def keep(self, secret: dict[str, str]) -> None:
        """Make the secret of the catalog."""
        client = self.client("secretsmanager")
        client.create_secret(Name=f"{self.name}/catalog", SecretString=json.dumps(secret))

    def deploy(self, more: str = "") -> None:
        self.write(more)
        self.outputs = self.app.deploy(PROGRESS)

    def write(self, more: str = "") -> None:
        text = CONFIG.format(
            name=self.name,
            bucket=self.published.stack.bucket,
            database=self.published.database,
            publish=self.publish,
            more=more,
        )
        self.config.write_text(text)

    def planned(self) -> set[tuple[str, bool]]:
        """What a deploy would change of the targets, and whether that breaks something."""
        done = CliRunner().invoke(
            calve, ["plan", "--offline", "--config", str(self.config), "--output", "json"]
        )
        assert done.exit_code == 0, done.output
        found = (each for each in json.loads(done.stdout)["changes"] if each["section"] == "publish")
        return {(each["kind"], each["breaking"]) for each in found}

    @property
    def app(self) -> App:
        return App(self.published.stack, self.config)

    @property
    def states(self) -> PublishStates:
        name = self.outputs[f"{self.name}-publish"]["PublishStatesTable"]
        return PublishStates(name, self.client("dynamodb"))

    def states_of(self, table: str) -> list[PublishState | None]:
        """The table's state at each target."""
        name = f"{self.published.database}.{table}"
        return [self.states.find(each, name) for each in self.targets]

    def are(self, state: State, table: str) -> bool:
        return all(each is not None and each.state is state for each in self.states_of(table))

    def client(self, service: str) -> Any:
        return aws.client(service, self.published.stack.aws_endpoint)

    def announce(self, table: str) -> None:
        detail = {"deployment": self.name, "database": self.published.database, "table": table}
        entry = {"Source": SOURCE, "DetailType": COMMITTED, "Detail": json.dumps(detail)}
        assert self.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0

    def reconcile(self) -> None:
        """Run the comparison of each target."""
        functions = self.client("lambda").list_functions()["Functions"]
        names = [each["FunctionName"] for each in functions]
        own = [each for each in names if each.startswith(f"{self.name}-publish") and "Reconcile" in each]
        assert len(own) == len(self.targets)
        for name in own:
            answer = self.client("lambda").invoke(FunctionName=name, Payload=b"{}")
            assert "FunctionError" not in answer, answer["Payload"].read()
