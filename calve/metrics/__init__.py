"""Every metric of a deployment; dashboard, alarms, filters and functions use no others. docs/metrics.md is this list."""

from calve.metrics.metric import Metric
from calve.metrics.of_functions import OF_FUNCTIONS
from calve.metrics.of_jobs import OF_JOBS
from calve.metrics.of_services import OF_SERVICES

METRICS: tuple[Metric, ...] = (*OF_JOBS, *OF_FUNCTIONS, *OF_SERVICES)
