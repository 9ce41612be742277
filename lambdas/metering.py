"""Metrics of functions; `calve.outputs.metrics` lists them."""

from __future__ import annotations

from aws_lambda_powertools import Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from calve.outputs.metrics import Metric

NAMESPACE = "calve"


def add(metrics: Metrics, metric: Metric, value: float = 1) -> None:
    """Write the metric at the end of the invocation, with its dimensions."""
    metrics.add_metric(metric.name, metric.unit, value)


def add_alone(metric: Metric, **dimensions: str) -> None:
    """Write the metric now, with the value 1."""
    with single_metric(
        metric.name, MetricUnit(metric.unit), 1, namespace=NAMESPACE, default_dimensions=dict(dimensions)
    ):
        pass
