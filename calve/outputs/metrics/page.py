"""Writes docs/metrics.md from the list: `python -m calve.outputs.metrics.page > docs/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from calve.outputs.metrics.function_metrics import OF_FUNCTIONS
from calve.outputs.metrics.metric import OF_JOBS, OF_SERVICES, Function, Log, Metric

HEAD = """\
# Metrics

<!-- Written by `python -m calve.outputs.metrics.page`; change `calve/outputs/metrics/` instead. -->

All metrics of a deployment; its dashboard and its [alarms](operations.md) use no others. CloudWatch charges for each metric of
each table, so there are few: what else is known of a round, a commit or a table is in the [events](events.md) of the job's log,
in the summary of each snapshot, and in `calve status`.
"""
JOBS = """\
In the namespace `calve/DEPLOYMENT`, by filters over the [events](events.md) of the job's log. The job writes the same plain lines
on a laptop as in AWS, and needs no right to write metrics.

`Table` is the full name, `DATABASE.TABLE`; under `namespace: cluster_id` it is `Topic` instead, the topic's name. A metric
without a dimension ends in the job's name: `JobFailed.main`. A job with [expressions](topics.md) has `Freshness`, `Lag`, `Lost`
and `Trouble` of all its tables together as well: `Lag.main`.
"""
FUNCTIONS = """\
In the namespace `calve`, written by functions in the embedded metric format.
"""
SERVICES = """\
In AWS's own namespaces, as far as alarms watch them.
"""


def page() -> str:
    sections = (
        ("Jobs", JOBS, OF_JOBS),
        ("Functions", FUNCTIONS, OF_FUNCTIONS),
        ("AWS", SERVICES, OF_SERVICES),
    )
    return "\n".join([HEAD, *("\n".join(_section(*each)) for each in sections)])


def _section(title: str, text: str, metrics: Iterable[Metric]) -> Iterator[str]:
    yield f"## {title}\n\n{text}"
    yield "| metric | unit | dimensions | from | is | bad |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for each in metrics:
        by = ", ".join(f"`{name}`" for name in each.dimensions) or "-"
        tells = f"{each.tells} ({each.peers})" if each.peers else each.tells
        yield f"| `{each.name}` | {each.unit} | {by} | {_source(each)} | {tells} | {each.bad} |"
    yield ""


def _source(metric: Metric) -> str:
    match metric.source:
        case Log(None):
            return "all events of a table"
        case Log(event, None):
            return f"`{event}`"
        case Log(event, key):
            return f"`{key}` of `{event}`"
        case Function(folder):
            return f"`{folder}`"
        case service:
            return f"`{service.namespace}`"


if __name__ == "__main__":
    sys.stdout.write(page())
