"""Alarms of exports, published tables, and keys that rotate."""

from __future__ import annotations

from calve.outputs.metrics import (
    BOUNCES,
    CATALOG_FAILED,
    EXPORT_INCOMPLETE,
    LINK_FAULTS,
    SNOWFLAKE_FAILED,
    SNOWFLAKE_LAG,
    SNOWFLAKE_STUCK,
    UNDELIVERED,
)
from stacks.base.rotation import Rotation
from stacks.monitoring.board import QUARTER, AlarmText, Board, measured
from stacks.publishing.exports import ExportsStack, failures
from stacks.publishing.publish import CatalogSync
from stacks.publishing.snowflake import SnowflakePublisher

TWO_LOOKS = 2


def of_catalog(board: Board, catalog: CatalogSync) -> None:
    """An Iceberg REST catalog that is not synchronized with Glue."""
    name = catalog.reconcile.function.function_name
    board.alarm(
        "catalog-failed",
        measured(CATALOG_FAILED, "Maximum", function=name),
        AlarmText(
            "Tables of the Iceberg REST catalog differ from Glue: calve status says which.", "catalog-failed"
        ),
        periods=TWO_LOOKS,
    )
    board.errors(
        "catalog-reconcile-errors",
        catalog.reconcile.function,
        AlarmText("The Iceberg REST catalog was not compared with Glue.", "catalog-reconcile-errors"),
    )
    board.put_aside(
        "catalog-messages-failed",
        catalog.feed.failed,
        AlarmText("Commits could not be followed in the Iceberg REST catalog.", "catalog-messages-failed"),
    )


def of_snowflake(board: Board, snowflake: SnowflakePublisher) -> None:
    """Tables in Snowflake."""
    of = {"deployment": board.deployment.name}
    board.alarm(
        "snowflake-failed",
        measured(SNOWFLAKE_FAILED, **of),
        AlarmText("Tables in Snowflake stay behind the lake's: calve status says which.", "snowflake-failed"),
        periods=QUARTER,
    )
    board.alarm(
        "snowflake-lag",
        measured(SNOWFLAKE_LAG, "Maximum", **of),
        AlarmText("Commits are seen too late in Snowflake.", "snowflake-lag"),
        above=board.deployment.alerts.published_late_s,
        periods=QUARTER,
    )
    board.alarm(
        "snowflake-stuck",
        measured(SNOWFLAKE_STUCK, **of),
        AlarmText("Snowflake keeps stopping to refresh tables by itself.", "snowflake-stuck"),
        periods=QUARTER,
    )
    board.errors(
        "snowflake-not-reconciled",
        snowflake.reconcile.function,
        AlarmText("Snowflake was not compared with the lake.", "snowflake-not-reconciled"),
    )
    board.put_aside(
        "snowflake-messages-failed",
        snowflake.feed.failed,
        AlarmText("Commits could not be followed in Snowflake.", "snowflake-messages-failed"),
    )


def of_exports(board: Board, exports: ExportsStack) -> None:
    """Files that are late or missing, mails that fail, links that do not open."""
    board.errors(
        "export-errors",
        exports.writer.function,
        AlarmText("A run of the export function failed; it is tried twice more.", "export-errors"),
    )
    board.dropped(
        "export-not-started",
        exports.schedules.group,
        AlarmText("A schedule could not start its export.", "export-not-started"),
    )
    for export in board.deployment.exports:
        board.alarm(
            f"{export.name}-late",
            measured(EXPORT_INCOMPLETE, export=export.name, function=exports.writer.name),
            AlarmText(
                f"{export.name} was written before its window was complete: {export.source} lags.",
                "EXPORT-late",
            ),
        )
    _of_mails(board, exports)
    board.alarm(
        "export-link-faults",
        measured(LINK_FAULTS, deployment=board.deployment.name),
        AlarmText("A link was refused since a system did not answer.", "export-link-faults"),
    )
    board.mail_on(
        "ExportFailed",
        failures(board.deployment.name),
        AlarmText("The export <name> has failed: <reason>.", "EXPORT-failed"),
        about="An export was given up",
        paths={"name": "$.detail.export.name", "reason": "$.detail.reason"},
    )


def _of_mails(board: Board, exports: ExportsStack) -> None:
    board.errors(
        "export-mail-errors",
        exports.mails.function.function,
        AlarmText("A file was written, and a mail about it was not sent.", "export-mail-errors"),
    )
    for name, topic in exports.mails.topics.items():
        board.alarm(
            f"{name}-mail-undelivered",
            measured(UNDELIVERED, TopicName=topic.topic_name),
            AlarmText(f"A mail about {name} did not reach a recipient.", "EXPORT-mail-undelivered"),
        )
    if any(export.channel == "ses" for export in board.deployment.exports):
        board.alarm(
            "export-mail-bounced",
            measured(BOUNCES),
            AlarmText("A mail by SES came back.", "export-mail-bounced"),
        )


def of_rotation(board: Board, keys: str, rotation: Rotation) -> None:
    """keys: the system that they open."""
    board.errors(
        f"{keys}-keys-not-rotated",
        rotation.function.function,
        AlarmText(f"The keys of {keys} were not changed; the old ones stay valid.", "KEYS-keys-not-rotated"),
    )
