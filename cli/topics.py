"""The tables of entries with `topics`: from the topics that Kafka lists, and from the tables that the lake has.

A table stores its topic, so it is found even if Kafka does not answer or the topic is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from calve.config.job import Job
from calve.config.topics import Expansion, Keeper, expand, name_pattern
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.table.summary import TOPIC
from cli.kafka import Cluster, cluster_database
from cli.lake import aws_errors, load, open_catalog


def with_named(jobs: Sequence[Job], names: Iterable[str]) -> tuple[Job, ...]:
    """The jobs with the tables of patterns that have these names, found in the lake, else in Kafka."""
    declared = {table.name for job in jobs for table in job.tables}
    wanted = [name for name in names if name not in declared]
    return tuple(_with_named(job, wanted) if wanted and job.patterns else job for job in jobs)


def _with_named(job: Job, names: Sequence[str]) -> Job:
    catalog, database = open_catalog(job.lake), job.database(cluster_database(job))
    keeper = _keeper(catalog, database)
    found = of_lake(job, {name: topic for name in names if (topic := keeper(name))})
    if {each.name for each in found.tables} != set(names):
        listed = Cluster(job.kafka, job.lake.region).topic_names()
        found = joined(expand(job, listed, keeper), found)
    return with_tables(job, found)


def surveyed(job: Job, catalog: Catalog, database: str, listed: Iterable[str]) -> Expansion:
    """The tables of the job's patterns: for the topics that Kafka lists, and for other topics that the lake has tables of."""
    if not job.patterns:
        return Expansion()
    keeper = _keeper(catalog, database)
    found = expand(job, listed, keeper)
    known = {each.name for each in found.tables} | {each.name for each in job.entries}
    names = [name for name in _names(job, catalog, database) if name not in known]
    with ThreadPoolExecutor(max_workers=8) as pool:
        topics = dict(zip(names, pool.map(keeper, names), strict=True))
    return joined(found, of_lake(job, {name: topic for name, topic in topics.items() if topic}))


def of_lake(job: Job, topics: Mapping[str, str]) -> Expansion:
    """The tables of the job's patterns that the lake has; `topics`: the topic of each, by table name."""
    found = expand(job, topics.values(), topics.get)
    return Expansion(tuple(each for each in found.tables if topics.get(each.name) == each.topic))


def joined(first: Expansion, second: Expansion) -> Expansion:
    """Both, each table once; topics without a table are those of the first."""
    tables = {each.name: each for each in (*second.tables, *first.tables)}
    return Expansion(tuple(tables[name] for name in sorted(tables)), first.not_kept)


def with_tables(job: Job, found: Expansion) -> Job:
    """The job with the tables of its patterns, each once, after those that calve.yaml names."""
    tables = {each.name: each for each in (*job.tables, *found.tables)}
    return replace(job, tables=tuple(tables.values()))


def _names(job: Job, catalog: Catalog, database: str) -> list[str]:
    """The tables of the database whose names match a pattern."""
    patterns = [re.compile(name_pattern(each.name)) for each in job.patterns]
    with aws_errors(f"database {database}"):
        try:
            found = [str(identifier[-1]) for identifier in catalog.list_tables(database)]
        except NoSuchNamespaceError:
            return []
    return [
        name
        for name in found
        if not name.endswith(DEAD_LETTERS_SUFFIX) and any(each.fullmatch(name) for each in patterns)
    ]


def _keeper(catalog: Catalog, database: str) -> Keeper:
    def topic_of(table: str) -> str | None:
        found = load(catalog, TableName(database, table))
        return found.properties.get(TOPIC) if found else None

    return topic_of
