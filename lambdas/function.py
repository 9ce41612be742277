"""What functions share: values from variables and properties, metrics and events.

`calve.outputs.metrics` lists the metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints

from aws_lambda_powertools import Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from calve.errors import ConfigError, Fatal
from calve.outputs.announcement import Announcement
from calve.outputs.metrics import Metric

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

NAMESPACE = "calve"


def from_variables(kind: type[T], variables: Mapping[str, str]) -> T:
    """A dataclass from the environment: each field from the variable of its name in upper case.

    Raises:
        ConfigError: a variable is missing or invalid.
    """
    return _read(kind, variables, str.upper)


def from_properties(kind: type[T], properties: Mapping[str, Any]) -> T:
    """A dataclass from a custom resource: `key_alias` from `KeyAlias`. CloudFormation sends all values as strings.

    Raises:
        ConfigError: a property is missing or invalid.
    """
    return _read(kind, properties, lambda name: name.title().replace("_", ""))


def _read(kind: type[T], values: Mapping[str, str], written: Callable[[str], str]) -> T:
    types = get_type_hints(kind)
    names = {each.name: written(each.name) for each in fields(kind)}
    required = [
        names[each.name]
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    ]
    if missing := [name for name in required if name not in values]:
        raise ConfigError(f"the function has no {', '.join(missing)}", fix="deploy all stacks")
    given = {field: name for field, name in names.items() if name in values}
    return kind(**{field: _value(name, values[name], types[field]) for field, name in given.items()})


def _value(name: str, text: str, kind: Any) -> Any:
    """The value of a text: a number, `true` or `false`, a list with commas, or a JSON object."""
    collection = get_origin(kind)
    if kind is int:
        if not text.isdecimal():
            raise ConfigError(f"{name} is {text!r}", fix="use a number, 0 or above")
        return int(text)
    if kind is bool:
        if text not in ("true", "false"):
            raise ConfigError(f"{name} is {text}", fix="use true or false")
        return text == "true"
    if collection in (tuple, frozenset):
        return collection(filter(None, text.split(",")))
    return json.loads(text) if collection is dict else text


def add(metrics: Metrics, metric: Metric, value: float = 1) -> None:
    """Write the metric at the end of the invocation, with its dimensions."""
    metrics.add_metric(metric.name, metric.unit, value)


def add_alone(metric: Metric, **dimensions: str) -> None:
    """Write the metric now, with the value 1."""
    with single_metric(
        metric.name, MetricUnit(metric.unit), 1, namespace=NAMESPACE, default_dimensions=dict(dimensions)
    ):
        pass


def announce(events: Any, announcement: Announcement) -> None:
    """Put an event on EventBridge; `events` is its client. Raises Fatal: EventBridge did not take it."""
    entry = announcement.entry()
    if events.put_events(Entries=[entry])["FailedEntryCount"]:
        raise Fatal(f"EventBridge did not take the event {entry['DetailType']}")
