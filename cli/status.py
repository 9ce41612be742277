"""`calve status`: how each table fares."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TablesArgument, load_jobs
from cli.console import Console, Output, OutputOption

if TYPE_CHECKING:
    from cli.survey import TableStatus
    from lambdas.publish_states import PublishState


def status(
    tables: TablesArgument = None,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show how each table fares: state, rows, lag, freshness, dead letters.

    Examples:
      calve status
      calve status stock_trades --output json
    """
    from cli.published import published
    from cli.survey import Survey

    console = Console(output)
    surveys = [Survey.begin(job, console) for job in load_jobs(config, env, tables=tables or ())]
    found = [status for each in surveys for status in each.statuses(tables or ())]
    not_kept = [topic for each in surveys for topic in each.not_kept]
    elsewhere = published(config, env, console, tables or ())
    console.table("status", [_line(each) for each in found])
    if dead := [each for each in found if each.dead_letters]:
        console.table("dead letters", [_reasons(each) for each in dead])
    if told := [each for each in found if each.reason]:
        console.table("reasons", [_reason(each) for each in told])
    if elsewhere:
        console.table("published", [_published(each) for each in elsewhere])
    if not_kept:
        console.table("topics without a table", [asdict(each) for each in not_kept])
    console.document(
        {
            "tables": [asdict(each) for each in found],
            "published": [asdict(each) for each in elsewhere],
            "not_kept": [asdict(each) for each in not_kept],
        }
    )


def _line(status: TableStatus) -> dict[str, object]:
    """One row for people."""
    lag = "-" if status.lag_records is None else f"{status.lag_records:,}"
    if status.lag_records and status.lag_s is not None:
        lag += f" ({duration(status.lag_s)})"
    fresh = "-" if status.freshness_s is None else duration(status.freshness_s)
    return {
        "table": status.table,
        "state": status.state,
        "rows": status.rows,
        "committed": "-" if status.commit_age_s is None else f"{duration(status.commit_age_s)} ago",
        "lag": lag,
        "freshness": f"{fresh} of {duration(status.freshness_target_s)}",
        "dead_letters": sum(status.dead_letters.values()),
    }


def _reasons(status: TableStatus) -> dict[str, object]:
    reasons = (f"{reason}:{count:,}" for reason, count in status.dead_letters.items())
    return {"table": status.table, "by_reason": "  ".join(reasons)}


def _reason(status: TableStatus) -> dict[str, object]:
    return {
        "table": status.table,
        "state": status.state,
        "code": status.code,
        "since": status.since,
        "reason": status.reason,
    }


def _published(state: PublishState) -> dict[str, object]:
    return {
        "table": state.table,
        "target": state.target,
        "state": state.state,
        "since": datetime.fromtimestamp(state.since_ms / 1000, UTC).isoformat(timespec="seconds"),
        "snapshot": state.snapshot_id,
        "lag": None if state.lag_s is None else duration(state.lag_s),
        "reason": state.reason,
    }


def duration(seconds: float) -> str:
    """`0.4s`, `59s`, `5m`, `3h12m`, `2d4h`."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{whole}s"
