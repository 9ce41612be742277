"""`calve up` and `calve down`: the life of the embedded stack."""

from __future__ import annotations

from cli.console import Console, Output, OutputOption


def up(output: OutputOption = Output.text) -> None:
    """Start the embedded stack, or reuse the one that runs.

    A real Kafka broker, a schema registry and an AWS emulator, on free ports of 127.0.0.1. What is missing is
    downloaded first, once. The stack outlives this command; `calve down` stops it.

    Example:
      calve up
    """
    from cli.embedded.layout import project_root
    from cli.embedded.stack import up as start_stack

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
    console.panel("calve is up", endpoints | {"next": "calve demo   calve datagen stock_trades   calve down"})
    console.document(
        {
            "bootstrap_servers": stack.bootstrap_servers,
            "ssl_bootstrap_servers": stack.ssl_bootstrap_servers,
            "sasl_bootstrap_servers": stack.sasl_bootstrap_servers,
            "ca_file": stack.ca_file,
            "registry_url": stack.registry_url,
            "aws_endpoint": stack.aws_endpoint,
            "bucket": stack.bucket,
            "region": stack.region,
            "logs": stack.logs,
        }
    )


def down() -> None:
    """Stop the embedded stack and drop its data; downloads stay.

    Example:
      calve down
    """
    from cli.embedded.layout import project_root
    from cli.embedded.stack import down as stop_stack

    stopped = stop_stack(project_root())
    Console().event("calve is down" if stopped else "nothing was up")
