"""Alarms, metrics and the dashboard. Each alarm names its paragraph in docs/operations.md."""
