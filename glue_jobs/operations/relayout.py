"""Change the layout of a live table to that of calve.yaml. New files use it; existing files change when they are compacted."""

from __future__ import annotations

import uuid
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from calve.errors import CalveError, Retryable
from calve.requests.requests import Entry, now, outdated
from calve.rounds.column_rules import layout_problems
from calve.schema.columns import Transform
from glue_jobs.iceberg.catalog import Table, catalog_errors, ordered, term
from glue_jobs.iceberg.layout import partition_of, transform_of
from glue_jobs.process import faults
from glue_jobs.process.java import elements, problem
from glue_jobs.table.open_table import OpenTable, TableMemory

Layout = tuple[tuple[Transform, ...], tuple[Transform, ...]]
"""Partition fields and sort fields."""


def relayout(opened: OpenTable, memory: TableMemory) -> None:
    """Change partition spec and sort order in one commit if calve.yaml has others.

    A table by key without `partition_by` keeps its partition spec: an earlier release may have given it buckets.
    Raises Retryable: the catalog does not answer, or another writer was faster.
    """
    table, main = opened.config, opened.main
    held = layout_of(main)
    bucketed = table.mode.bucketed
    wanted = held[0] if bucketed else table.partition_by, table.sort_by
    same = set(held[0]) == set(wanted[0]) and held[1] == wanted[1]  # partition fields have no order
    if same or wanted == memory.layout_refused:
        return
    asked = replace(table, partition_by=wanted[0], sort_by=wanted[1])
    try:
        for problem in layout_problems(asked, str(opened.name), main.schema):
            raise problem
        told = f"partition by {_words(wanted[0])}, sort by {_words(wanted[1])}"
        _change(main, held, wanted, Entry(uuid.uuid4().hex, now(), "layout", told))
    except Retryable:
        raise
    except CalveError as error:
        memory.layout_refused = wanted
        fix = f"in calve.yaml, change partition_by or sort_by of table {table.name}"
        opened.event("layout.refused", why=error.message, fix=fix)
        return
    faults.point("layout.changed", table.name)
    main.refresh()
    opened.event("layout.changed", result=told)


def layout_of(table: Table) -> Layout:
    schema = table.java.schema()
    order = [
        replace(transform_of(schema, each), descending=str(each.direction().toString()) == "DESC")
        for each in elements(table.java.sortOrder().fields())
    ]
    return partition_of(table), tuple(order)


def _words(transforms: tuple[Transform, ...]) -> str:
    return ", ".join(map(str, transforms)) or "nothing"


def _change(main: Table, held: Layout, wanted: Layout, entry: Entry) -> None:
    expressions = main.iceberg.expressions.Expressions
    with catalog_errors(f"table {main.name}"):
        transaction = main.java.newTransaction()
        try:
            update = transaction.updateSpec()
            gone = [each for each in held[0] if each not in wanted[0]]
            new = [each for each in wanted[0] if each not in held[0]]
            for each in gone:
                update = update.removeField(term(expressions, each))
            for each in new:
                update = update.addField(term(expressions, each))
            if gone or new:
                update.commit()
            if held[1] != wanted[1]:
                ordered(main.iceberg, transaction.replaceSortOrder(), wanted[1]).commit()
        except (Py4JJavaError, IllegalArgumentException) as error:
            raise CalveError(f"Iceberg refuses the layout: {problem(error)}") from None
        properties = transaction.updateProperties()
        for name, value in entry.property().items():
            properties.set(name, value)
        for name in outdated(main.properties):
            properties.remove(name)
        properties.commit()
        try:
            transaction.commitTransaction()
        except IllegalArgumentException:
            raise Retryable(f"table {main.name}: another writer changes its layout, too") from None
        main.committed()
