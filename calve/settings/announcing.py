"""What others hear of a table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from calve.settings import fields
from calve.settings.section import Section


class AnnounceSection(Section):
    """What the events of the table's commits say beside the usual; see docs/announcements.md."""

    count_by: fields.ColumnName
    """Column of the table, of texts, truths or whole numbers: events say how many rows of a commit have which value. For
    columns of few values, at most 50 in a commit; never for one that is masked"""
    alert_on: Annotated[list[fields.CountedValue], Field(max_length=10)] = Field(default_factory=list)
    """Values of it that are mailed to `alerts.emails` whenever a commit has rows of them. Default: none"""
