"""The tables of a job that are there, as the catalog knows them: neither Kafka nor a registry is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from calve.job import Job, Table
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.position import INITIALISED, TOPIC
from calve.topics import expand, name_pattern
from glue_jobs import lake


def tables_of(job: Job, catalog: lake.Lake) -> Iterator[tuple[Table, lake.Table]]:
    """Tables that calve has made, by what calve.yaml says of them; those of patterns, too.

    Raises:
        Retryable: the catalog does not answer.
    """
    for database in databases(job, catalog):
        settings = {each.name: each for each in (*job.tables, *_of_patterns(job, catalog, database))}
        for name, table in settings.items():
            found = catalog.load(TableName(database, name))
            if found is not None and INITIALISED in found.properties:
                yield table, found


def databases(job: Job, catalog: lake.Lake) -> list[str]:
    """Those that the job's tables may be in: under `namespace: cluster_id` each that the deployment has made."""
    return catalog.databases() if job.lake.namespace == "cluster_id" else [job.database()]


def _of_patterns(job: Job, catalog: lake.Lake, database: str) -> Iterable[Table]:
    """The tables of the job's patterns, by what each table says that it was made for."""
    patterns = [re.compile(name_pattern(each.name)) for each in job.patterns]
    topics: dict[str, str] = {}
    for name in catalog.tables(database) if patterns else ():
        if not name.endswith(DEAD_LETTERS_SUFFIX) and any(each.fullmatch(name) for each in patterns):
            found = catalog.load(TableName(database, name))
            if found is not None and TOPIC in found.properties:
                topics[name] = found.properties[TOPIC]
    made = expand(job, topics.values(), topics.get).tables
    return (each for each in made if topics.get(each.name) == each.topic)
