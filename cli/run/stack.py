"""`calve up` and `calve down`: the embedded stack."""

from __future__ import annotations

from cli.console import Console, Output, OutputOption
from cli.embedded.layout import project_root
from cli.embedded.stack import down as stop_stack
from cli.embedded.stack import up as start_stack

ENDPOINTS = (
    *("bootstrap_servers", "ssl_bootstrap_servers", "sasl_bootstrap_servers", "ca_file"),
    *("registry_url", "aws_endpoint", "bucket", "region", "logs"),
)


def up(*, output: OutputOption = Output.text) -> None:
    """Start the embedded stack, or reuse the one that runs.

    A real Kafka broker, a schema registry and an AWS emulator, on free ports of 127.0.0.1. What is missing is
    downloaded first, once. The stack outlives this command; `calve down` stops it.

    Example:
      calve up
    """
    console = Console(output)
    stack = start_stack(project_root(), console.progress())
    endpoints = {
        "kafka": stack.bootstrap_servers,
        "kafka tls": stack.ssl_bootstrap_servers,
        "kafka sasl": f"{stack.sasl_bootstrap_servers}  (user {stack.sasl_user}, PLAIN or SCRAM-SHA-512)",
        "registry": stack.registry_url,
        "aws": f"{stack.aws_endpoint}  (bucket {stack.bucket})",
        "logs": stack.logs,
    }
    console.panel("calve is up", endpoints | {"next": "calve init   calve demo   calve down"})
    console.document({name: getattr(stack, name) for name in ENDPOINTS})


def down() -> None:
    """Stop the embedded stack and drop its data; downloads stay.

    Example:
      calve down
    """
    stopped = stop_stack(project_root())
    Console().event("calve is down" if stopped else "nothing was up")
