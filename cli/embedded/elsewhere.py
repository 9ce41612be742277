"""Targets that tables are published to, beside the running stack: a REST catalog and a stand-in for Snowflake.

Both are programs of the checkout's `tests/standins`, not part of calve, and stop with the stack.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from calve.errors import Fatal
from cli.embedded import aws, processes
from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.processes import HOST, call, free_ports
from cli.embedded.stack import Stack
from lambdas.snowflake.sql_api import KeyPair, Session

STAND_INS = CHECKOUT / "tests" / "standins"
REST, SNOWFLAKE = "rest_catalog", "snowflake"
ANSWERS = {REST: ("/v1/config", 200), SNOWFLAKE: ("/", 401)}
"""Path and status of each target's first answer once it is up."""

ACCOUNT, USER, ROLE = "MYORG-EMBEDDED", "DEPLOYER", "ACCOUNTADMIN"
SECRET = "embedded/snowflake"  # noqa: S105 the name of one
READY_DEADLINE_S = 180.0
"""At its first start the catalog downloads its jars, 30 MB."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """catalog: address of the REST catalog. snowflake: address of the stand-in's SQL API; key: its administrator's."""

    catalog: str
    snowflake: str
    key: KeyPair

    @property
    def session(self) -> Session:
        return Session(self.snowflake, ACCOUNT, USER, self.key, ROLE)

    @property
    def publish(self) -> Mapping[str, Mapping[str, object]]:
        """`publish` of a calve.yaml whose tables go to both."""
        return {
            "iceberg_rest": {"uri": self.catalog},
            "snowflake": {
                "account": ACCOUNT.lower(),
                "url": self.snowflake,
                "user": USER.lower(),
                "secret": f"aws:{SECRET}",
                "warehouse": {},
            },
        }


def up(stack: Stack) -> Elsewhere:
    """Both targets: running already, or started and recorded, so that they stop with the stack."""
    layout = Layout(stack.root)
    recorded = processes.read_state(layout.stack_file)
    if recorded is None:
        raise Fatal("the embedded stack is not up", fix="calve up")
    secrets = aws.client("secretsmanager", stack.aws_endpoint)
    if SNOWFLAKE in recorded.processes:
        held = json.loads(secrets.get_secret_value(SecretId=SECRET)["SecretString"])
        key = KeyPair.of_pem(held["private_key"])
    else:
        key = KeyPair.generate()
        secrets.create_secret(Name=SECRET, SecretString=json.dumps({"private_key": key.to_pem()}))
        ports = dict(zip((REST, SNOWFLAKE), free_ports(2), strict=True))
        recorded = replace(recorded, ports=recorded.ports | ports)
        login = {"account": ACCOUNT, "user": USER, "public-key": key.public_text}
        waiting = []
        with processes.signals_held():  # between the start and its record nothing may come
            for name, options in ((REST, {"root": str(stack.root)}), (SNOWFLAKE, login)):
                waiting.append(start(stack, name, ports[name], options, folder=layout.run / name))
                recorded = recorded.with_process(name, waiting[-1].process)
                processes.write_state(layout.stack_file, recorded)
        processes.wait_until_ready(waiting, deadline_s=READY_DEADLINE_S)
    catalog, snowflake = (f"http://{HOST}:{recorded.ports[name]}" for name in (REST, SNOWFLAKE))
    return Elsewhere(catalog, snowflake, key)


def start(
    stack: Stack, name: str, port: int, options: Mapping[str, str], *, folder: Path
) -> processes.Starting:
    """Start one of the two with its data in `folder`. The caller waits for it, and stops it."""
    given = {"port": str(port), "aws": stack.aws_endpoint, **options}
    words = [f"--{key}={value}" for key, value in given.items()]
    kept = ("PATH", "HOME", "LANG", "TZ", "JAVA_HOME")
    environment = {key: os.environ[key] for key in kept if key in os.environ} | {"PYTHONPATH": str(CHECKOUT)}
    log = Layout(stack.root).logs / f"{name}.log"
    command = [sys.executable, "-m", f"tests.standins.{name}", *words]
    process = processes.start(command, log=log, environment=environment, folder=folder)
    path, status = ANSWERS[name]
    return processes.Starting(name, process, lambda: call(f"http://{HOST}:{port}{path}") == status, log)
