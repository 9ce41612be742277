"""Why an export ends without a file: an error that names its kind."""

from __future__ import annotations

from typing import Literal

from calve.errors import CalveError

Kind = Literal[
    "bad_event",
    "missing_table",
    "several_tables",
    "unreadable_table",
    "missing_column",
    "bad_time_column",
    "bad_column",
    "bad_window",
    "bad_filter",
    "too_many_groups",
    "out_of_time",
]


class ExportFailed(CalveError):
    """`kind` is a stable word for alarms; the message goes to the recipients and holds no value of the table."""

    def __init__(self, kind: Kind, message: str, *, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.kind = kind
