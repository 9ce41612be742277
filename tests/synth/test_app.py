"""The app as the CDK CLI starts it."""

import json
import os
import subprocess
import sys

import pytest

from calve.errors import ConfigError
from stacks.bundling import ROOT
from stacks.lake_removal import is_asked_for

BAD = """\
name: trading
tables:
  stock_trades: {topic: stock_trades, freshnes: 60s}
  users: {topik: users}
"""


def test_a_bad_configuration_ends_with_everything_that_is_wrong_and_no_trace(tmp_path):
    config = tmp_path / "calve.yaml"
    config.write_text(BAD)
    context = json.dumps({"config": str(config)})
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CDK_CONTEXT_JSON": context}
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stderr
    assert "freshnes" in done.stderr
    assert "topik" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_first_key_names_its_deployment():
    assert is_asked_for("yes-delete-trading", "trading")
    assert not is_asked_for(None, "trading")
    for wrong in ("yes", "true", "yes-delete-other"):
        with pytest.raises(ConfigError, match="does not name"):
            is_asked_for(wrong, "trading")
