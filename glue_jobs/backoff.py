"""Failures in a row of what may be tried again: how long to wait, and after how many of them a person is told."""

from __future__ import annotations

LONGEST_BACKOFF_S = 60.0
FAILED_AFTER = 8


def backoff_s(failures: int) -> float:
    """The wait after so many failures, of which each doubles it."""
    return min(LONGEST_BACKOFF_S, 0.5 * 2.0 ** min(failures, 10))
