"""Metrics of functions, by the one list of them: `calve.outputs.metrics`."""

from __future__ import annotations

from aws_lambda_powertools import Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from calve.outputs.metrics.metric import Metric

NAMESPACE = "calve"


def add(metrics: Metrics, metric: Metric, value: float = 1) -> None:
    """Write the metric when the function's run ends, with all that it measures."""
    metrics.add_metric(metric.name, metric.unit, value)


def add_alone(metric: Metric, **dimensions: str) -> None:
    """Write the metric now, as 1."""
    with single_metric(
        metric.name, MetricUnit(metric.unit), 1, namespace=NAMESPACE, default_dimensions=dict(dimensions)
    ):
        pass
