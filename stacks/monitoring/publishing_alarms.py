"""Alarms of exports, published tables, and keys that rotate."""

from __future__ import annotations

from calve.outputs.metrics.function_metrics import (
    CATALOG_FAILED,
    EXPORT_INCOMPLETE,
    LINK_FAULTS,
    SNOWFLAKE_FAILED,
    SNOWFLAKE_LAG,
    SNOWFLAKE_STUCK,
)
from calve.outputs.metrics.metric import BOUNCES, UNDELIVERED
from stacks.base.rotation import Rotation
from stacks.monitoring.board import QUARTER, Board, measured
from stacks.publishing.exports import ExportsStack, failures, writer_name
from stacks.publishing.publish import CatalogSync
from stacks.publishing.snowflake import SnowflakePublisher

TWO_LOOKS = 2


def of_catalog(board: Board, catalog: CatalogSync) -> None:
    """An Iceberg REST catalog that is not synchronized with Glue."""
    name = catalog.reconcile.function.function_name
    failed = "Tables of the Iceberg REST catalog differ from Glue: calve status says which."
    not_compared = "The Iceberg REST catalog was not compared with Glue."
    not_followed = "Commits could not be followed in the Iceberg REST catalog."
    measure = measured(CATALOG_FAILED, "Maximum", function=name)
    board.alarm("catalog-failed", measure, failed, periods=TWO_LOOKS)
    board.errors("catalog-reconcile-errors", catalog.reconcile, not_compared)
    board.put_aside("catalog-messages-failed", catalog.feed.failed, not_followed)


def of_snowflake(board: Board, snowflake: SnowflakePublisher) -> None:
    of = {"deployment": board.deployment.name}
    late_s = board.deployment.alerts.published_late_s
    failed = "Tables in Snowflake stay behind the lake's: calve status says which."
    late = "Commits are seen too late in Snowflake."
    stuck = "Snowflake keeps stopping to refresh tables by itself."
    not_compared = "Snowflake was not compared with the lake."
    not_followed = "Commits could not be followed in Snowflake."
    lag = measured(SNOWFLAKE_LAG, "Maximum", **of)
    board.alarm("snowflake-failed", measured(SNOWFLAKE_FAILED, **of), failed, periods=QUARTER)
    board.alarm("snowflake-lag", lag, late, above=late_s, periods=QUARTER)
    board.alarm("snowflake-stuck", measured(SNOWFLAKE_STUCK, **of), stuck, periods=QUARTER)
    board.errors("snowflake-not-reconciled", snowflake.reconcile, not_compared)
    board.put_aside("snowflake-messages-failed", snowflake.feed.failed, not_followed)


def of_exports(board: Board, exports: ExportsStack) -> None:
    """Files that are late or missing, mails that fail, links that do not open."""
    deployment = board.deployment
    run_failed = "A run of the export function failed; it is tried twice more."
    not_mailed = "A file was written, and a mail about it was not sent."
    refused = "A link was refused since a system did not answer."
    board.errors("export-errors", exports.writer, run_failed)
    board.dropped("export-not-started", exports.schedules.group, "A schedule could not start its export.")
    for export in deployment.exports:
        board.alarm(
            f"{export.name}-late",
            measured(EXPORT_INCOMPLETE, export=export.name, function=writer_name(deployment.name)),
            f"{export.name} was written before its window was complete: {export.source} lags.",
            runbook="EXPORT-late",
        )
    board.errors("export-mail-errors", exports.mails.function, not_mailed)
    for name, topic in exports.mails.topics.items():
        board.alarm(
            f"{name}-mail-undelivered",
            measured(UNDELIVERED, TopicName=topic.topic_name),
            f"A mail about {name} did not reach a recipient.",
            runbook="EXPORT-mail-undelivered",
        )
    if any(export.channel == "ses" for export in deployment.exports):
        board.alarm("export-mail-bounced", measured(BOUNCES), "A mail by SES came back.")
    board.alarm("export-link-faults", measured(LINK_FAULTS, deployment=deployment.name), refused)
    board.mail_on(
        "ExportFailed",
        failures(deployment.name),
        "The export <name> has failed: <reason>.",
        "EXPORT-failed",
        "An export was given up",
        {"name": "$.detail.export.name", "reason": "$.detail.reason"},
    )


def of_rotation(board: Board, keys: str, rotation: Rotation) -> None:
    says = f"The keys of {keys} were not changed; the old ones stay valid."
    board.errors(f"{keys}-keys-not-rotated", rotation.function, says, "KEYS-keys-not-rotated")
