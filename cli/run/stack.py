"""`calve up` and `calve down`: the embedded stack. `calve produce`: lines as records, to try a topic of your own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, Message, Producer

from calve.config.job import Kafka
from calve.errors import CalveError, ConfigError
from cli.config import Where, embedded_stack, found, load_jobs
from cli.console import Console, Output, OutputOption
from cli.embedded.layout import project_root
from cli.embedded.stack import down as stop_stack
from cli.embedded.stack import up as start_stack
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

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


TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic; it is made where it is absent.")
]
FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Its lines; without it, those of standard input.")
]


def produce(topic: TopicArgument, file: FileArgument = None, *, given: Where) -> None:
    """Produce each line as the value of a record, byte for byte, without a key.

    They go to the Kafka of calve.yaml, or of `calve up` if there is no calve.yaml. Empty lines are left out.

    Example:
      calve produce orders orders.jsonl
    """
    config, stack = found(given.config), embedded_stack()
    if config.exists() or stack is None:
        job, *_ = load_jobs(config, given.env)
        kafka, region = job.kafka, job.lake.region
    else:
        kafka, region = Kafka(stack.bootstrap_servers), stack.region
    try:
        text = file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}", fix="name a file with lines") from None
    values = [line for line in text.splitlines() if line.strip()]
    faults: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            faults.append(error)

    properties = client_properties(kafka, region)
    create_topic(topic, 1, properties)
    producer = Producer({**properties, "on_delivery": delivered})
    for value in values:
        producer.produce(topic, value)
        producer.poll(0)
    producer.flush()
    if faults:
        raise CalveError(f"{len(faults)} of {len(values)} records were not delivered: {faults[0].str()}")
    Console().table("produced", [{"topic": topic, "records": len(values)}])
