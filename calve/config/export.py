"""A scheduled export, resolved: what the functions are handed as JSON, in the schedule's input.

`calve.settings` makes these values from `exports:`; standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Window = Literal["previous_day", "previous_week", "previous_month"]
Function = Literal["sum", "count", "min", "max"]
Channel = Literal["sns", "ses"]
Formulas = Literal["guard", "keep"]
EXPORTS = "exports/"
"""The folder of the lake with the files of all exports."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregated column: `function` over `column`; `count` without a column counts rows."""

    name: str
    function: Function
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Csv:
    """How the file is written. `row_limit` is of one part, without its header: a spreadsheet ends at 1,048,576 rows.

    `formulas`: whether a text that a spreadsheet would run as a formula gets an apostrophe before it, or is kept as it is.
    """

    delimiter: str = ","
    bom: bool = False
    gzip: bool = False
    system_columns: bool = False
    row_limit: int = 1_000_000
    formulas: Formulas = "guard"


@dataclass(frozen=True, slots=True)
class Export:
    """One table's window as a CSV file. `columns` empty: all; `filter` is a row filter in PyIceberg's notation.

    `database` empty: the one of the deployment's Kafka cluster, which each run finds in Glue.

    `time_column` is a path such as `created_at` or `_kafka.timestamp`. A week begins on Monday; windows are those of `time_zone`.
    `schedule` is an EventBridge expression, evaluated in `time_zone`. `sender` is needed by `ses` alone.
    """

    name: str
    database: str
    table: str
    time_column: str
    schedule: str
    recipients: tuple[str, ...]
    window: Window = "previous_week"
    time_zone: str = "UTC"
    columns: tuple[str, ...] = ()
    filter: str | None = None
    group_by: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    csv: Csv = Csv()
    channel: Channel = "sns"
    sender: str | None = None
    reply_to: str | None = None
    wait_s: float = 7200.0
    recheck_windows: int = 2
    keep_days: int = 90
    link_days: int = 7
    max_downloads: int = 50

    @property
    def source(self) -> str:
        """The table as messages name it."""
        return f"{self.database}.{self.table}" if self.database else self.table

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw: dict[str, Any] = json.loads(text)
        lists = {key: tuple(raw[key]) for key in ("recipients", "columns", "group_by")}
        measures = tuple(Measure(**each) for each in raw["measures"])
        return cls(**(raw | lists | {"measures": measures, "csv": Csv(**raw["csv"])}))
