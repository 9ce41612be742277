"""The shape of calve.yaml's exports."""

from typing import Self

from pydantic import Field, model_validator

from calve.config.export import Channel, Formulas, Window
from calve.settings import fields
from calve.settings.fields import Section
from calve.settings.problems import InvalidParts, Problem


class CsvSection(Section):
    """How the file is written."""

    delimiter: fields.Delimiter = ","
    """`,`, `;`, a vertical bar or a tab (`"\\t"`); spreadsheets of most of Europe expect `;`. Default: `,`"""
    bom: bool = False
    """Begin with a byte order mark, by which Excel knows UTF-8. Default: `false`"""
    gzip: bool = False
    """Compress the file. Default: `false`"""
    system_columns: bool = False
    """Add the columns of `_kafka`. Default: `false`"""
    row_limit: int = Field(default=1_000_000, ge=1, le=1_048_575)
    """Rows of one file, without its header; more make numbered parts. A spreadsheet ends at 1,048,575. Default: `1000000`"""
    formulas: Formulas = "guard"
    """`guard`: an apostrophe before what a spreadsheet would run as a formula; `keep`: every text as it is, for readers
    that run none. Default: `guard`"""


class LinkSection(Section):
    """The link in the mail."""

    days: int = Field(default=7, ge=1, le=30)
    """Days for which it works, at most 30. Default: `7`"""
    max_downloads: int = Field(default=50, ge=1, le=10_000)
    """Downloads after which it no longer works. Default: `50`"""


class ExportSection(Section):
    """One table's time window as a CSV file, mailed as a link; its key is its name."""

    table: fields.Text
    """Table, by its key in `tables`"""
    columns: fields.Columns = Field(default_factory=list)
    """List of columns, in the order of the file. Default: all but `_kafka`"""
    filter: fields.Filter | None = None
    """Rows to take, such as `symbol == 'ZVZZT' and price > 10`"""
    group_by: fields.Columns = Field(default_factory=list)
    """List of columns of which every combination makes one row; needs `measures`"""
    measures: fields.Measures = Field(default_factory=dict)
    """Columns that are computed for each group, or for all rows: `{trades: count, volume: sum(quantity)}`; `count`,
    `count(column)`, `sum(...)`, `min(...)`, `max(...)`"""
    time_column: fields.Column | None = None
    """Column whose time decides which window a row is in. Default: the table's `event_time`, else `_kafka.timestamp`"""
    schedule: fields.Schedule
    """When the file is made: `cron(0 6 ? * MON *)` or `rate(1 day)`"""
    time_zone: fields.TimeZone = "UTC"
    """Time zone of schedule, window and file, such as `Europe/Vilnius`. Default: `UTC`"""
    window: Window = "previous_week"
    """`previous_day`, `previous_week` (from Monday) or `previous_month`. Default: `previous_week`"""
    recipients: fields.Emails = Field(min_length=1)
    """Addresses that the mail goes to"""
    channel: Channel = "sns"
    """`sns`: plain text, each recipient confirms once; `ses`: needs a verified `sender`. Default: `sns`"""
    sender: fields.Email | None = None
    """With `ses`: address that the mail comes from"""
    reply_to: fields.Email | None = None
    """Address of the one to ask"""
    csv: CsvSection = CsvSection()
    """See `exports.<name>.csv`"""
    wait: fields.Duration | None = None
    """How long after its schedule the export waits for the window to be complete. Default: `2h`"""
    recheck_windows: int = Field(default=2, ge=0, le=12)
    """Earlier windows that each run looks at again; rows that came late make a correction. Default: `2`"""
    keep: fields.Days | None = None
    """How long files are kept, in whole days. Default: `90d`"""
    link: LinkSection = LinkSection()
    """See `exports.<name>.link`"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [*self._aggregation(), *self._mail()]
        if self.keep is not None and self.keep < self.link.days:
            reason = f"ends before the link does, which works for {self.link.days} days"
            problems.append(Problem(("keep",), reason, f"use `keep: {self.link.days}d` or a shorter link"))
        if problems:
            raise InvalidParts(problems)
        return self

    def _aggregation(self) -> list[Problem]:
        problems = []
        if self.group_by and not self.measures:
            fix = "add `measures: {rows: count}`"
            problems.append(Problem(("measures",), "is missing: `group_by` needs it", fix))
        if self.columns and (self.group_by or self.measures):
            reason = "has no use with `measures`: the file has the groups and the measures"
            problems.append(Problem(("columns",), reason, "remove it"))
        if self.csv.system_columns and self.measures:
            reason = "has no use with `measures`: a group comes from many records"
            problems.append(Problem(("csv", "system_columns"), reason, "remove it"))
        groups = [column.lower() for column in self.group_by]
        problems += [
            Problem(("measures", name), f'"{name}" is a column of `group_by` already', "rename the measure")
            for name in self.measures
            if name.lower() in groups
        ]
        return problems

    def _mail(self) -> list[Problem]:
        if self.channel == "ses" and self.sender is None:
            return [Problem(("sender",), "is missing: ses needs it", "add `sender: reports@example.com`")]
        if self.channel == "sns" and self.sender is not None:
            return [Problem(("sender",), "has no use with sns", "remove it, or use `channel: ses`")]
        return []
