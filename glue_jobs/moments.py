"""Texts that say a moment."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

YEAR = "(?!0000)[0-9]{4}"
DATE = rf"\A{YEAR}-[0-9]{{2}}-[0-9]{{2}}\z"
ZONE = r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
MOMENT = rf"\A{YEAR}-[0-9]{{2}}-[0-9]{{2}}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}}0*)?{ZONE}\z"
"""RFC 3339 with microseconds: what has more of them, or no offset, is no exact moment of a column."""


def date(text: Column) -> Column:
    """The day that a text says; null where it says none."""
    return F.when(text.rlike(DATE), text.try_cast("date"))


def moment(text: Column) -> Column:
    """The moment that a text says, to the microsecond; null where it says none."""
    return F.when(text.rlike(MOMENT), F.upper(text).try_cast("timestamp"))
