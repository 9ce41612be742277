"""Who tables are published to, beside the running stack: a REST catalog and a stand-in for Snowflake. They end with the stack."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from calve.errors import Fatal
from cli.embedded import aws, processes, state
from cli.embedded.http import call
from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.ports import HOST, free_ports
from cli.embedded.rest_catalog import server as rest_catalog
from lambdas.snowflake.key_pair import KeyPair
from lambdas.snowflake.sql_api import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.embedded.stack import Stack

REST, SNOWFLAKE = "rest_catalog", "snowflake"
ACCOUNT, USER, ROLE = "MYORG-EMBEDDED", "DEPLOYER", "ACCOUNTADMIN"
SECRET = "embedded/snowflake"  # noqa: S105 the name of one
READY_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """catalog: address of the REST catalog. snowflake: that of the stand-in's SQL API; key: its administrator's."""

    catalog: str
    snowflake: str
    key: KeyPair

    @property
    def session(self) -> Session:
        """The administrator's."""
        return Session(self.snowflake, ACCOUNT, USER, self.key, ROLE)

    @property
    def publish(self) -> Mapping[str, Mapping[str, object]]:
        """`publish` of a calve.yaml whose tables both shall get."""
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
    """Both, as they run already, or started and recorded, so that whatever stops the stack stops them.

    Raises:
        Fatal: one does not start, or the stack is not up.
    """
    layout = Layout(stack.root)
    recorded = state.read(layout.stack_file)
    if recorded is None:
        raise Fatal("the embedded stack is not up", fix="calve up")
    secrets = aws.client("secretsmanager", stack.aws_endpoint)
    if SNOWFLAKE in recorded.processes:
        held = json.loads(secrets.get_secret_value(SecretId=SECRET)["SecretString"])
        return _found(recorded, KeyPair.of_pem(held["private_key"]))
    key = KeyPair.generate()
    secrets.create_secret(Name=SECRET, SecretString=json.dumps({"private_key": key.to_pem()}))
    recorded = _start(stack, layout, recorded, key)
    return _found(recorded, key)


def _found(recorded: state.State, key: KeyPair) -> Elsewhere:
    catalog, snowflake = (f"http://{HOST}:{recorded.ports[name]}" for name in (REST, SNOWFLAKE))
    return Elsewhere(catalog, snowflake, key)


def _start(stack: Stack, layout: Layout, recorded: state.State, key: KeyPair) -> state.State:
    ports = dict(zip((REST, SNOWFLAKE), free_ports(2), strict=True))
    recorded = replace(recorded, ports=recorded.ports | ports)
    with processes.signals_held():  # between the start and its record nothing may come
        for name, process in (
            (REST, rest_catalog.start(stack, layout.run / REST, ports[REST])),
            (SNOWFLAKE, _stand_in(stack, layout, ports[SNOWFLAKE], key)),
        ):
            recorded = recorded.with_process(name, process)
            state.write(layout.stack_file, recorded)
    waiting = [
        processes.Starting(name, recorded.processes[name], ready, layout.logs / f"{name}.log")
        for name, ready in (
            (REST, partial(rest_catalog.answers, ports[REST])),
            (SNOWFLAKE, lambda: call(f"http://{HOST}:{ports[SNOWFLAKE]}/") != 0),
        )
    ]
    processes.wait_until_ready(waiting, deadline_s=READY_DEADLINE_S, on_ready=lambda _: None)
    return recorded


def _stand_in(stack: Stack, layout: Layout, port: int, key: KeyPair) -> processes.Process:
    options = {
        "--port": str(port),
        "--aws": stack.aws_endpoint,
        "--account": ACCOUNT,
        "--user": USER,
        "--public-key": key.public_text,
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    return processes.start(
        [
            *(sys.executable, "-m", "cli.embedded.snowflake"),
            *(text for option in options.items() for text in option),
        ],
        log=layout.logs / f"{SNOWFLAKE}.log",
        environment=kept | {"PYTHONPATH": str(Path(CHECKOUT))},
        folder=layout.run / SNOWFLAKE,
    )
