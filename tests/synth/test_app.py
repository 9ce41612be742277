"""The app as the CDK CLI starts it."""

import json
import os
import subprocess
import sys

import pytest
from jsii._runtime import kernel

from calve.errors import ConfigError
from cli.embedded.runtimes import node, search_path
from stacks.base.bundling import ROOT
from stacks.stateful.lake_storage import delete_data_requested

BAD = """\
name: trading
tables:
  stock_trades: {topic: stock_trades, freshnes: 60s}
  users: {topik: users}
"""


LEAVES_OPEN = """\
name: trading
tables: {users: {topic: users}}
"""


def test_templates_are_made_with_the_node_of_calve():
    assert kernel.provider._process._process.args[0] == node()  # type: ignore[attr-defined]


@pytest.fixture
def run(tmp_path):
    """Run the app as the CLI does, on a configuration; its result, and where the templates are."""

    def start(configuration):
        config, out = tmp_path / "calve.yaml", tmp_path / "cdk.out"
        config.write_text(configuration)
        context = {"config": str(config), "aws:cdk:bundling-stacks": []}
        environment = {
            "PATH": search_path(),
            "HOME": os.environ["HOME"],
            "CDK_CONTEXT_JSON": json.dumps(context),
            "CDK_OUTDIR": str(out),
        }
        done = subprocess.run(
            [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
        )
        return done, out

    return start


def test_a_bad_configuration_ends_with_everything_that_is_wrong_and_no_trace(run):
    done, _ = run(BAD)
    assert done.returncode == 2, done.stderr
    assert "freshnes" in done.stderr
    assert "topik" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_what_is_left_to_the_embedded_stack_can_be_looked_at_and_not_deployed(run):
    done, out = run(LEAVES_OPEN)
    assert done.returncode == 0, done.stderr
    assert "names no kafka and no registry" in done.stderr
    parameters = json.loads((out / "trading-lake.template.json").read_text())["Parameters"]
    for section in ("Kafka", "Registry"):
        assert "Default" not in parameters[f"MissingInConfiguration{section}"]


def test_the_first_key_names_its_deployment():
    assert delete_data_requested("yes-delete-trading", "trading")
    assert not delete_data_requested(None, "trading")
    for wrong in ("yes", "true", "yes-delete-other"):
        with pytest.raises(ConfigError, match="does not name"):
            delete_data_requested(wrong, "trading")


def test_secrets_of_the_stacks_are_told_apart_by_their_ids(synthesized):
    """`cli/act/keys.py` goes by these."""
    of = {"trading": ["Snowflake"], "guest": ["IcebergRest"]}
    for name, begins in of.items():
        ids = synthesized.find(f"{name}-publish", "AWS::SecretsManager::Secret")
        assert [begin for begin in begins for id in ids if id.startswith(begin)] == begins
        assert len(ids) == len(begins)
