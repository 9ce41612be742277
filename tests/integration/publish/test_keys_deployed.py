"""`rotate` in calve.yaml, deployed: Secrets Manager changes the user by the deployed function, and `calve keys` tells of it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.integration.support.deployed import deployment, destroy
from tests.integration.support.engine import Engine, until
from tests.integration.support.servers.principals import READING, User

KAFKA = """\
kafka:
  bootstrap_servers: {servers}
  auth:
    type: sasl_scram
    secret: aws:{secret}
    ca_file: {ca_file}
    rotate: {{after_days: 7, admin_secret: aws:{admin}}}
"""


@pytest.mark.long
def test_the_deployed_function_changes_the_user(engine: Engine, tmp_path: Path) -> None:
    keyed = deployment(engine, tmp_path, f"keyed{uuid.uuid4().hex[:6]}")
    secrets = keyed.client("secretsmanager")
    user = User(engine.admin, f"ingest-{keyed.name}")
    user.make()
    user.allow(keyed.topic, READING)

    def store(name: str, username: str, password: str) -> str:
        text = json.dumps({"username": username, "password": password})
        secrets.create_secret(Name=f"{keyed.name}/{name}", SecretString=text)
        return f"{keyed.name}/{name}"

    secret = store("kafka", user.name, user.password)
    admin = store("admin", engine.stack.sasl_user, engine.stack.sasl_password)
    kafka = KAFKA.format(
        servers=engine.stack.sasl_bootstrap_servers, secret=secret, admin=admin, ca_file=engine.stack.ca_file
    )
    keyed.config.write_text(kafka + keyed.config.read_text())
    keyed.deploy()
    assert shown(keyed.config) == {"kafka": "ok", "changes kafka": "by hand"}

    secrets.rotate_secret(SecretId=secret)
    until(lambda: "LastRotatedDate" in secrets.describe_secret(SecretId=secret), seconds=120)
    texts = json.loads(secrets.get_secret_value(SecretId=secret)["SecretString"])
    changed = User(engine.admin, texts["username"], texts["password"])
    assert changed.name == f"{user.name}_clone"
    assert changed.rights() == user.rights()
    assert shown(keyed.config)["kafka"] == "ok"
    destroy(keyed.app, keyed.progress)
    assert not secrets.describe_secret(SecretId=secret)["RotationEnabled"]


def shown(config: Path) -> dict[str, str]:
    """What `calve keys` says of each key."""
    done = CliRunner().invoke(app, ["keys", "--config", str(config), "--output", "json"])
    assert done.exit_code == 0, done.output
    return {each["use"]: each["state"] for each in json.loads(done.stdout)["keys"]}
