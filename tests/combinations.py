"""What combines with which mode, asked of the code: `python -m tests.combinations` prints the table of docs/modes.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calve.config.job import Job, Kafka, Registry, Table
from calve.errors import Suspended
from calve.modes.switch import switch
from calve.schema.columns import CHANGE, KAFKA, field, struct, with_ids
from calve.settings import load
from calve.settings.model import configuration
from calve.settings.relations import relations
from calve.settings.resolving import StackDefaults

Values = Mapping[str, Any]
MODES: dict[str, Values] = {
    "append": {},
    "`upsert`": {"upsert": {"key": ["id"]}},
    "`upsert`, `order_by`": {"upsert": {"key": ["id"], "order_by": "size"}},
    "`change_data`": {"change_data": {"key": ["id"]}},
    "`change_data`, `order_by`": {"change_data": {"key": ["id"], "order_by": ["lsn"], "deletes": "keep"}},
    "`history`": {"history": {"key": ["id"]}},
    "`history`, `order_by`": {"history": {"key": ["id"], "order_by": "made"}},
    "`history` of changes": {"history": {"key": ["id"], "of": "change_data"}},
    "`deduplicate`": {"deduplicate": {"key": ["id"]}},
    "`aggregate`": {"aggregate": {"by": ["id"], "measures": {"total": "sum(size)"}}},
}
OPTIONS: dict[str, Values] = {
    "`flatten`": {"steps": ["flatten"]},
    "`flatten`, `explode`": {"steps": [{"flatten": {"explode": "tags"}}]},
    "`filter`": {"steps": [{"filter": "id > 1"}]},
    "`sql`": {"steps": [{"sql": "SELECT *, id + 1 AS next FROM source"}]},
    "`lookup`": {
        "steps": [{"lookup": {"table": "others", "on": {"id": "id"}, "columns": {"label": "name"}}}]
    },
    "`mask`": {"steps": [{"mask": {"name": "hash"}}]},
    "`expect`": {"expect": [{"that": "id > 1", "at_least": "10%"}]},
    "`expect`, `drop`": {"expect": [{"that": "id > 1", "else": "drop"}]},
    "`route`": {"route": {"column": "id", "value": [1, 2]}},
    "`quarantine_new_fields`": {
        "quarantine_new_fields": True,
        "steps": [{"mask": {"fields": {"name": "keep"}, "key": "keep", "headers": "keep"}}],
    },
    "`emit`": {"emit": {"topic": "emitted"}},
    "`topics`": {"topics": "t_.*"},
    "`maintenance.rows`": {"maintenance": {"rows": {"column": "made", "keep": "90d"}}},
}
STACK = StackDefaults(Kafka("127.0.0.1:9092"), Registry("http://127.0.0.1:8081"), "s3://lake")
COLUMNS = with_ids(
    struct(
        field("id", "long"),
        field("size", "long"),
        field("name", "string"),
        field("made", "timestamptz"),
        CHANGE,
        KAFKA,
    )
)
YES = "yes"


def document(mode: Values, option: Values, *, masking: str = "env:MASKING") -> dict[str, Any]:
    """A calve.yaml with one table. masking: where its keys are."""
    name, source = ("{topic}", {}) if "topics" in option else ("t", {"topic": "t"})
    return {"name": "t", "masking": {"secret": masking}, "tables": {name: {**source, **mode, **option}}}


def refusal(mode: Values, option: Values) -> str | None:
    """Why the configuration is refused; None: it is not."""
    values = document(mode, option)
    folder = Path()
    found = (*configuration(values, folder)[1], *relations(values, folder))
    named = [part for part in found[0].path[2:] if not part.isdigit()] if found else []
    return f"`{'.'.join(named)}` {_of_any(found[0].reason, mode)}" if found else None


def _of_any(reason: str, mode: Values) -> str:
    """A reason that names no mode."""
    for kind in mode:
        reason = reason.replace(f"`{kind}`", "this mode").replace(f"of {kind} ", "of this mode ")
    return reason


@cache
def table_of(name: str) -> Table:
    """A table of this mode."""
    return job_of(document(MODES[name], {})).tables[0]


def job_of(values: Values) -> Job:
    import yaml

    with TemporaryDirectory() as folder:
        file = Path(folder) / "calve.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        [job] = load(file, stack=STACK)
    return job


def switched(name: str, to: str) -> str | None:
    """Why a table of this mode does not become one of another; None: it does."""
    before, after = (table_of(each).mode.note(COLUMNS) for each in (name, to))
    try:
        switch("t", "t", before, after)
    except Suspended:
        kind = table_of(name).mode.kind
        if kind == "history":
            return "its versions have ends, which further records would no longer move"
        if (kind, to) == ("upsert", "`history`"):
            return "rows that newer records replaced are gone, and would be missing in the history"
        return "its rows do not tell what another mode would have made of the records"
    return None


def commands(name: str) -> dict[str, str | None]:
    """What is asked of a table that holds rows, and why it is refused."""
    mode = table_of(name).mode
    why = mode.cannot_backfill
    return {
        "`redrive`": None,
        "`forget`": mode.cannot_forget,
        "`backfill`": why and _of_any(why, MODES[name]),
        "`rewind`, `rollback`": None,
        "becomes append": switched(name, "append"),
        "becomes `upsert`": switched(name, "`upsert`"),
        "becomes `history`": switched(name, "`history`"),
    }


def cells() -> Iterator[tuple[str, list[str | None]]]:
    """Each line of the table: its name, and of each mode why not."""
    for option, values in OPTIONS.items():
        yield option, [refusal(mode, values) for mode in MODES.values()]
    of_modes = [commands(name) for name in MODES]
    for command in of_modes[0]:
        yield command, [each[command] for each in of_modes]


def table() -> str:
    """The table, and its reasons, each once."""
    reasons: dict[str, int] = {}
    lines = [f"| | {' | '.join(MODES)} |", f"| --- |{' --- |' * len(MODES)}"]
    for name, why in cells():
        shown = (
            YES if each is None else f"no ({reasons.setdefault(each, len(reasons) + 1)})" for each in why
        )
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return (
        "\n".join([*lines, "", *(f"{number}. {why[0].upper()}{why[1:]}." for why, number in reasons.items())])
        + "\n"
    )


if __name__ == "__main__":
    sys.stdout.write(table())
