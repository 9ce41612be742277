"""The operator's commands and the embedded stack; never deployed.

A function that asks a system raises `Retryable` if the system does not answer, and `Fatal` if it refuses. One that cannot use
its input raises `ConfigError`. `cli.main` prints each `CalveError` with its fix: docstrings name only what a caller handles.
"""
