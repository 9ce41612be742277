"""The command `calve datagen`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from calve.config import job
from calve.errors import ConfigError
from cli.config import EnvOption, load_jobs
from cli.console import Console, Output, OutputOption
from cli.embedded.layout import project_root
from cli.embedded.stack import current
from cli.run.datagen.plan import DATASETS, MALFORMED, Naming, Plan, in_turn
from cli.run.datagen.produce import Target, produce

TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help=f"The topic; its name picks the records: {', '.join(DATASETS)}."),
]
Like = Annotated[
    str | None, typer.Option("--like", help="Records of this kind, for a topic with another name.")
]
Malformed = Annotated[int, typer.Option(min=0, help="Malformed records, of every kind in turn.")]
MalformedKind = Annotated[
    list[str] | None, typer.Option("--malformed-kind", help=f"KIND=N, repeatable: {', '.join(MALFORMED)}.")
]
Bootstrap = Annotated[str | None, typer.Option("--bootstrap", help="A cluster's host:port, with --registry.")]
RegistryUrl = Annotated[
    str | None, typer.Option("--registry", help="A schema registry's URL, with --bootstrap.")
]
Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Produce to this configuration's cluster.")
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options that are a part of the plan as they are."""

    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Records in all.")] = 10_000
    seed: Annotated[int, typer.Option(help="The same seed makes the same records.")] = 0
    rate: Annotated[
        float | None, typer.Option(help="Records per second; as fast as possible without it.")
    ] = None
    duplicates: Annotated[float, typer.Option(help="Share of records that repeat an earlier one.")] = 0.0
    tombstones: Annotated[float, typer.Option(help="Share of records without a value.")] = 0.0
    negative_prices: Annotated[float, typer.Option(help="Share of trades with a price below 0.")] = 0.0
    large_quantities: Annotated[float, typer.Option(help="Share of trades of more than 4,000.")] = 0.0
    evolve: Annotated[
        bool, typer.Option("--evolve", help="Write the second half with a second schema version.")
    ] = False
    partitions: Annotated[int, typer.Option(min=1, help="Partitions, where the topic is made.")] = 6
    schema_id: Annotated[
        Naming,
        typer.Option(
            "--schema-id", help="Where records name their schema: before the value, or in a header."
        ),
    ] = "prefix"


def datagen(
    topic: TopicArgument,
    *,
    wanted: Wanted,
    like: Like = None,
    malformed: Malformed = 0,
    malformed_kind: MalformedKind = None,
    bootstrap: Bootstrap = None,
    registry: RegistryUrl = None,
    config: Config = None,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Produce example records: trades, users.

    They go to the embedded stack unless a cluster is named. The topic is made where it is absent.

    Examples:
      calve datagen stock_trades --count 300000 --duplicates 0.01 --malformed 60
      calve datagen stock_trades --evolve
    """
    dataset = next((known for known in DATASETS if known == (like or topic)), None)
    if dataset is None:
        fix = f"add --like {' or --like '.join(DATASETS)}"
        raise ConfigError(f'there are no example records "{like or topic}"', fix=fix)
    kinds = in_turn(malformed)
    for each in malformed_kind or ():
        kind, _, number = each.partition("=")
        if not number.isdecimal():
            raise ConfigError(f'"{each}" is not KIND=N', fix="--malformed-kind bad_magic=10")
        kinds[kind] = kinds.get(kind, 0) + int(number)
    plan = Plan(topic, dataset=dataset, malformed=kinds, **asdict(wanted))
    console = Console(output)
    target = _target(bootstrap, registry, config, env)
    with console.progress().task(f"producing {topic}", total=plan.count, unit="records") as task:
        produced = produce(plan, target, task.update)
    figures = {
        "topic": produced.topic,
        "records": produced.records,
        "per_second": int(produced.records / max(produced.seconds, 0.001)),
        "applied": produced.fates.applied,
        "duplicates": produced.fates.duplicates,
        "dead_letters": sum(produced.fates.dead_lettered.values()),
    }
    console.table("produced", [figures])
    console.document(asdict(produced))


def _target(bootstrap: str | None, registry: str | None, config: Path | None, env: str | None) -> Target:
    """The cluster that is named, the configuration's, or the embedded one."""
    if bootstrap and registry:
        return Target(job.Kafka(bootstrap), job.Registry(registry))
    if bootstrap or registry:
        raise ConfigError("--bootstrap and --registry belong together", fix="give both, or --config, or none")
    if config:
        first, *_ = load_jobs(config, env)
        return Target(first.kafka, first.registry, first.lake.region)
    if stack := current(project_root()):
        return Target(job.Kafka(stack.bootstrap_servers), job.Registry(stack.registry_url), stack.region)
    raise ConfigError(
        "the embedded stack is not up", fix="calve up, or name a cluster: --bootstrap and --registry"
    )
