"""`calve produce`: lines as records, to try a topic of your own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, Message, Producer

from calve.config.job import Kafka
from calve.errors import CalveError, ConfigError
from cli.config import Where, embedded_stack, found, load_jobs
from cli.console import Console
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

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
