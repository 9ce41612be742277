"""Every metric of a deployment; dashboard, alarms, filters and functions use no others. docs/metrics.md is this list."""

from calve.metrics.metric import OF_JOBS, OF_SERVICES, Metric
from calve.metrics.of_functions import OF_FUNCTIONS

METRICS: tuple[Metric, ...] = (*OF_JOBS, *OF_FUNCTIONS, *OF_SERVICES)
