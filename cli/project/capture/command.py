"""`calve capture`: records of a topic with their schemas, masked, as a folder that a test replays.

The command replays the masked records before it writes them: each one has the fate that it has unmasked.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from calve.config.job import Job, Table
from calve.config.steps import Lookup
from calve.errors import CalveError, ConfigError
from calve.table.position import Offsets
from calve.table.protocol import TopicState
from calve.table.summary import FIELDS, LEARNT
from cli.config import Common, TableArgument, load_jobs, table_named
from cli.project.capture.folder import Answers, Capture, Record, Recorder
from cli.project.capture.masking import Masking
from cli.project.preview import changes, outcome, replayed, summary
from cli.spark import local_session
from glue_jobs.engines.batch import errors_of_source
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.ingest import openers_of
from glue_jobs.kafka.client import settings_of
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.kafka.source import fetch_few

MOST_RECORDS = 10_000
MOST_SHOWN = 20
_RANGE = re.compile(r"(\d{1,9}):(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
OffsetsOption = Annotated[
    list[str],
    typer.Option(
        "--offsets", help="PARTITION:FIRST-LAST or PARTITION:OFFSET. Repeat it for other partitions."
    ),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep", help='Keep the values of this field, such as "status" or "customer.country"; "*": all.'
    ),
]
IntoOption = Annotated[
    Path | None, typer.Option("--into", help="The new folder; by default captures/TABLE-PARTITION-OFFSET.")
]


def capture(
    table: TableArgument,
    offsets: OffsetsOption,
    keep: KeepOption = None,
    into: IntoOption = None,
    *,
    given: Common,
) -> None:
    """Write records of a table's topic, masked, into a folder that a test replays.

    Every value is replaced by one of the same form. Names of fields, symbols of enums, booleans and the texts that calve.yaml
    contains stay. The folder also has the schemas. `calve preview --capture` reads it without Kafka, registry and AWS. A record
    that masking would make readable, or unreadable, is refused: keep the field that decides.

    Examples:
      calve capture orders --offsets 2:1841
      calve capture orders --offsets 2:1800-1850 --offsets 0:77 --keep status --into tests/late_orders
    """
    console, spans = given.console, parsed(offsets)
    [partition, (first, _)] = next(iter(spans.items()))
    folder = into or Path("captures", f"{table}-{partition}-{first}")
    if folder.exists():
        raise ConfigError(f"{folder} exists", fix="delete it, or name another folder: --into")
    job, wanted = table_named(load_jobs(given.config, given.env, tables=[table]), table)
    if looked_up := next((each.table for each in wanted.steps if isinstance(each, Lookup)), None):
        raise ConfigError(
            f"table {table} looks up rows of {looked_up}, and a capture holds no rows",
            fix="capture from a table without the step `lookup`",
        )
    spark = local_session(job)
    with console.progress().task(f"reading {wanted.topic}"):
        found = captured(spark, job, wanted, spans, keep or ())
        made = replayed(spark, job, wanted, found)
    if changed := changes(found.expected, made.fates):
        console.table("records that masking changes", changed[:MOST_SHOWN])
        raise CalveError(
            f"{len(changed):,} of {len(found.records):,} records would have another fate once they are masked: no folder was"
            " written",
            fix='keep the values of the field that decides: --keep FIELD, or of all: --keep "*"',
        )
    put(found, folder)
    console.say(f"{folder}: {summary(made.preview)}")
    console.say(f"replay: calve preview {table} --capture {folder}")
    console.document({"folder": str(folder), "records": len(found.records), "fates": found.fates})


def parsed(offsets: Sequence[str]) -> dict[int, tuple[int, int]]:
    """By partition the first offset, and the one behind the last. Raises ConfigError."""
    spans: dict[int, tuple[int, int]] = {}
    for each in offsets:
        found = _RANGE.fullmatch(each.strip())
        if found is None:
            raise ConfigError(
                f'--offsets: "{each}" is no range', fix='write it as in "2:1800-1850" or "2:1841"'
            )
        partition, first, last = int(found[1]), int(found[2]), int(found[3] or found[2])
        if last < first:
            raise ConfigError(
                f'--offsets: "{each}" ends before it begins', fix=f"write {partition}:{last}-{first}"
            )
        if partition in spans:
            raise ConfigError(
                f"--offsets names partition {partition} twice", fix="write one range for each partition"
            )
        spans[partition] = first, last + 1
    count = sum(to - first for first, to in spans.values())
    if count > MOST_RECORDS:
        raise ConfigError(
            f"--offsets are {count:,} offsets, and a capture holds {MOST_RECORDS:,}", fix="name fewer of them"
        )
    return spans


def captured(
    spark: SparkSession, job: Job, table: Table, spans: dict[int, tuple[int, int]], keep: Sequence[str] = ()
) -> Capture:
    """The masked records, with the fates of the original ones.

    Raises CalveError: the topic does not hold these offsets, or no record is at them. Raises also as `Opener.open`.
    """
    with closing(Cluster(job.kafka)) as cluster:
        [opener] = openers_of(replace(job, tables=(table,)), Lake(spark, job.name), cluster)
        services, recorder = opener.services, None
        if services.registry is not None:
            recorder = Recorder(services.registry)
            opener = replace(opener, services=replace(services, registry=recorder))
        topic = cluster.state(table.topic)
        start, to = _held(topic, spans)
        with errors_of_source(table):
            read = fetch_few(settings_of(cluster.connection), topic.name, topic.key.topic_id, start, to)
            if not len(read):
                raise CalveError(
                    f"topic {topic.name} has no record at these offsets",
                    fix="transactions and compaction leave offsets without records: name more of them",
                )
            fates = outcome(opener, read).fates
        masking = Masking(table, opener.schemas, [tuple(each.split(".")) for each in keep])
        records = sorted(map(Record.of_row, read.to_pylist()), key=lambda each: (each.partition, each.offset))
        is_noted = table.quarantine_new_fields or table.value.infer is not None
        noted = services.lake.load(opener.name) if is_noted else None
        properties = noted.properties if noted else {}
    masked = tuple(_masked(each, masking) for each in records)
    if unused := [each for each in keep if tuple(each.split(".")) not in masking.used]:
        raise ConfigError(
            f'--keep: no record has a value in the field "{unused[0]}"',
            fix="name it as in the record, with the names around it: customer.country",
        )
    return Capture(
        table=table.name,
        topic=table.topic,
        captured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        kept=tuple(keep),
        properties={name: properties[name] for name in (FIELDS, LEARNT) if name in properties},
        fates=tuple(fates[each.partition, each.offset] for each in records),
        records=masked,
        answers=recorder.answers if recorder else Answers(),
    )


def _held(topic: TopicState, spans: dict[int, tuple[int, int]]) -> tuple[Offsets, Offsets]:
    """Where to begin and end in each partition. Raises CalveError: the topic does not hold all of it."""
    for partition, (first, to) in spans.items():
        if partition not in topic.end:
            raise CalveError(
                f"topic {topic.name} has no partition {partition}", fix=f"it has 0 to {max(topic.end)}"
            )
        start, end = topic.log_start[partition], topic.end[partition]
        if first < start or to > end:
            held = f"{partition}:{start}-{end - 1}" if end > start else "none"
            raise CalveError(
                f"topic {topic.name} does not hold {partition}:{first}-{to - 1}",
                fix=f"it holds {held}. `calve dead-letters export` has the dead letters of expired records",
            )
    return {p: first for p, (first, _) in spans.items()}, {p: to for p, (_, to) in spans.items()}


def _masked(record: Record, masking: Masking) -> Record:
    return replace(
        record,
        key=masking.key(record.key, record.headers),
        value=masking.value(record.value, record.headers),
        headers=tuple(masking.headers(record.headers)),
    )


def put(found: Capture, folder: Path) -> None:
    """Write the folder whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as scratch:
        found.write(Path(scratch, folder.name))
        shutil.move(Path(scratch, folder.name), folder)
