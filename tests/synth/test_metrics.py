"""Dashboard, alarms, filters and functions use exactly the metrics of the list."""

import re
from pathlib import Path

import pytest

from calve.outputs import metrics
from calve.outputs.metrics import METRICS, Function, Log, Metric, Service
from stacks.monitoring.job_metrics import OF_EXPECTATIONS, OF_JOB, OF_MAINTENANCE, OF_PATTERNS
from tests.integration.support.events import documented
from tests.synth.conftest import text

LAMBDAS = Path(__file__).parents[2] / "lambdas"
LISTED = {each.name: each for each in METRICS}


def functions():
    """Service -> the metrics that its code names: a folder with a handler, or a module of a folder with several."""
    constants = {
        name: each
        for name, each in vars(metrics).items()
        if isinstance(each, Metric) and isinstance(each.source, Function)
    }
    found: dict[str, set[str]] = {}
    for file in LAMBDAS.glob("*/*.py"):
        folder = file.parent
        service = folder.name if (folder / "handler.py").exists() else f"{folder.name}_{file.stem}"
        found.setdefault(service, set()).update(
            constants[name].name
            for name in re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", file.read_text())
            if name in constants
        )
    return found


def listed(namespace, name):
    """The metric as the list has it; those of a job as a whole have its name behind a dot."""
    metric = LISTED[name.partition(".")[0]]
    match metric.source:
        case Service(there):
            assert namespace == there
        case Function():
            assert namespace == "calve"
        case Log():
            assert namespace.startswith("calve/")
    return metric


def test_each_is_listed_once():
    assert len(LISTED) == len(METRICS)


def test_those_of_a_jobs_log_are_of_documented_events_and_keys():
    events = documented()
    for each in METRICS:
        if isinstance(each.source, Log):
            assert {each.source.key} - {None} <= events[each.source.event]


def test_filters_make_exactly_those_of_a_jobs_log():
    made = [*OF_JOB, *OF_PATTERNS, *OF_EXPECTATIONS, *OF_MAINTENANCE]
    assert {each.metric for each in made} == {each for each in METRICS if isinstance(each.source, Log)}
    for each in made:
        assert isinstance(each.metric.source, Log)
        named = re.findall(r"(?:\$\.|\\\")event(?:\\\":)? ?(?:=)? ?(?:\\)?\"([a-z._]+)", each.pattern)
        assert named == [each.metric.source.event], each.pattern


def test_functions_write_exactly_those_of_functions():
    expected: dict[str, set[str]] = {folder: set() for folder in functions()}
    for each in METRICS:
        if isinstance(each.source, Function):
            expected[each.source.folder].add(each.name)
    assert functions() == expected
    own = [
        file.name for file in LAMBDAS.rglob("*.py") if re.search("add_metric|single_metric", file.read_text())
    ]
    assert own == ["function.py"]


def test_alarms_watch_none_but_those_of_the_list_by_its_dimensions(synthesized):
    watched = set()
    for stack in synthesized.templates:
        for alarm in synthesized.find(stack, "AWS::CloudWatch::Alarm").values():
            metric = listed(alarm["Namespace"], alarm["MetricName"])
            dimensions = {one["Name"] for one in alarm.get("Dimensions", ())}
            of_job = isinstance(metric.source, Log)
            assert dimensions == (set() if of_job else set(metric.dimensions)), alarm["AlarmName"]
            assert of_job == ("." in alarm["MetricName"])
            watched.add(metric.name)
    assert watched >= {each.name for each in METRICS if isinstance(each.source, Service)}


@pytest.mark.parametrize("deployment", ["trading", "shop"])
def test_the_dashboard_shows_none_but_those_of_the_list(synthesized, deployment):
    body = text(synthesized.one(f"{deployment}-monitoring", "AWS::CloudWatch::Dashboard")["DashboardBody"])
    shown = re.findall(r'\["(calve[^"]*)","([^"]*)"', body)
    queried = re.findall(r'SELECT MAX\((\w+)\) FROM SCHEMA\(\\+"(calve/[^"\\]*)', body)
    assert shown
    assert len(queried) == 2
    for namespace, name in [*shown, *((namespace, name) for name, namespace in queried)]:
        listed(namespace, name)
