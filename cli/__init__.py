"""The operator's commands and the embedded stack; never deployed.

A function that asks a system raises `Retryable` if the system does not answer, and `Fatal` if it refuses. Docstrings here name
only other errors.
"""
