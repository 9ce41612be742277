"""`calve up`, `calve deploy` and `calve down`: the embedded stack, and calve.yaml deployed into it by the CDK CLI."""

from __future__ import annotations

from calve.errors import Fatal
from cli.config import Common, found, load_jobs
from cli.console import Console, Output, OutputOption
from cli.embedded.cdk import App
from cli.embedded.layout import project_root
from cli.embedded.stack import current
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


def deploy(*, given: Common) -> None:
    """Deploy calve.yaml into the embedded stack.

    The stacks and the CLI are those of `cdk deploy --all`, which deploys into an AWS account; only Kafka and the registry,
    where calve.yaml names none, are those of `calve up`.

    Examples:
      calve deploy
      calve deploy --config examples/sales_channel/calve.yaml
    """
    stack = current(project_root())
    if stack is None:
        raise Fatal("the embedded stack is not up", fix="calve up   (for an AWS account: cdk deploy --all)")
    console = given.console
    jobs = load_jobs(given.config, given.env)  # says what is wrong with it better than the CLI can
    outputs = App(stack, found(given.config), given.env).deploy(console.progress())
    rows = [
        {"stack": name, "output": key, "value": value}
        for name, values in outputs.items()
        for key, value in values.items()
        if not key.startswith(("ExportsOutput", "PublishOutput"))  # what one stack hands to another
    ]
    console.table("output", rows, title="Outputs")
    names = "   ".join(f"calve run-job {job.name}-{job.job} --drain" for job in jobs)
    console.panel("deployed", {"next": names})
    console.document(outputs)
