"""Every metric of a deployment. Dashboard, alarms, filters and functions use no others. docs/metrics.md is this list."""

from calve.outputs.metrics.function_metrics import OF_FUNCTIONS
from calve.outputs.metrics.metric import OF_JOBS, OF_SERVICES, Metric

METRICS: tuple[Metric, ...] = (*OF_JOBS, *OF_FUNCTIONS, *OF_SERVICES)
