"""The origins of columns after each step, from the names and types of the columns alone: no record is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column, DataFrame

from calve.config.steps import Expect, Filter, Flatten, Leaf, Lookup, Mask, Route, Sql, Step
from calve.modes.aggregate import WINDOW_START, Aggregate, column_of
from calve.modes.measures import columns_in, parse
from calve.outputs.origins import Origin, Trace
from glue_jobs.transform.flatten import leaves, with_items
from glue_jobs.transform.mask import inside, rules
from glue_jobs.transform.query import paths_read, understand, understand_condition
from glue_jobs.transform.row_columns import data, record


def after(
    trace: Trace, step: Step, before: DataFrame, stay: frozenset[str], tags: Mapping[str, tuple[str, ...]]
) -> Trace:
    """The origins after a step on rows with the columns of `before`. A list to explode is still a list.

    stay, tags: of `glue_jobs.transform.chain.Chain`. Raises Suspended: as the step.
    """
    match step:
        case Route():
            return trace.filtered([step.column])
        case Filter() | Expect():
            condition = understand_condition(before, step.condition).condition
            return trace if condition is None else trace.filtered(paths_read(before, condition)[0])
        case Flatten():
            return _leaves(trace, leaves(before, step, stay))
        case Sql():
            return _selected(trace, before, step)
        case Lookup():
            return _looked_up(trace, step)
        case Mask():
            return _masked(trace, before, step, tags)


def after_explosion(trace: Trace, step: Flatten, before: DataFrame) -> Trace:
    """The origins after the list in its column is exploded."""
    return _leaves(trace, with_items(before, step)[1])


def of_groups(trace: Trace, aggregate: Aggregate) -> Trace:
    """The origins of an aggregate table's columns, from those of its records."""
    columns = {column_of(path): trace.at(path) for path in aggregate.by}
    if aggregate.window is not None:
        columns[WINDOW_START] = trace.all([aggregate.window.column], "computed")
    for measure in aggregate.measures:
        of = parse(measure.text).of
        columns[measure.name] = trace.all(() if of is None else columns_in(of), "aggregated")
    return replace(trace, columns=columns)


def _leaves(trace: Trace, found: list[Leaf]) -> Trace:
    columns: dict[str, tuple[Origin, ...]] = {}
    for each in found:
        path = ".".join(each.path)
        if each.key is None and not each.without:
            columns |= trace.under(path, each.name)
        else:
            columns[each.name] = trace.all([path], "computed")
    return replace(trace, columns=columns)


def _selected(trace: Trace, before: DataFrame, step: Sql) -> Trace:
    query = understand(before, step.query)
    if query.condition is not None:
        trace = trace.filtered(paths_read(before, query.condition)[0])
    columns: dict[str, tuple[Origin, ...]] = {}
    for name, value in query.columns.items():
        if isinstance(value, Column):
            paths, is_path = paths_read(before, value)
            columns[name] = trace.all(paths, "same" if is_path else "computed")
        else:
            columns |= trace.under(value, name)
    return replace(trace, columns=columns)


def _looked_up(trace: Trace, step: Lookup) -> Trace:
    chosen_by = trace.all(step.on, "joined")
    new = {name: (Origin(other, table=step.table), *chosen_by) for name, other in step.columns.items()}
    return replace(trace, columns=trace.columns | new)


def _masked(trace: Trace, before: DataFrame, step: Mask, tags: Mapping[str, tuple[str, ...]]) -> Trace:
    columns, found = dict(trace.columns), rules(step, tags, record(before))
    for name in data(before):
        for rest, rule in inside(found, name).items():
            path = ".".join((name, *rest))
            for below in [each for each in columns if each == path or each.startswith(f"{path}.")]:
                del columns[below]
            columns[path] = () if rule.how in ("drop", "null") else trace.all([path], "masked")
    return replace(trace, columns=columns)
