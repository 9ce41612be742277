"""Alarms of Snowflake and of an Iceberg REST catalog: tables that do not become what the lake's are."""

from __future__ import annotations

from calve.metrics.of_functions import CATALOG_FAILED, SNOWFLAKE_FAILED, SNOWFLAKE_LAG, SNOWFLAKE_STUCK
from stacks.alarms.board import QUARTER, Board, Says, measured
from stacks.catalog_sync import CatalogSync
from stacks.snowflake import SnowflakePublisher

TWO_LOOKS = 2


def of_catalog(board: Board, catalog: CatalogSync) -> None:
    """An Iceberg REST catalog that does not become equal to Glue."""
    name = catalog.reconcile.function.function_name
    board.alarm(
        "catalog-failed",
        measured(CATALOG_FAILED, "Maximum", function=name),
        Says(
            "Tables of the Iceberg REST catalog differ from Glue: calve status says which.", "catalog-failed"
        ),
        periods=TWO_LOOKS,
    )
    board.errors(
        "catalog-reconcile-errors",
        catalog.reconcile.function,
        Says("The Iceberg REST catalog was not compared with Glue.", "catalog-reconcile-errors"),
    )
    board.put_aside(
        "catalog-messages-failed",
        catalog.feed.failed,
        Says("Commits could not be followed in the Iceberg REST catalog.", "catalog-messages-failed"),
    )


def of_snowflake(board: Board, snowflake: SnowflakePublisher) -> None:
    """Tables in Snowflake."""
    of = {"deployment": board.deployment.name}
    board.alarm(
        "snowflake-failed",
        measured(SNOWFLAKE_FAILED, **of),
        Says("Tables in Snowflake stay behind the lake's: calve status says which.", "snowflake-failed"),
        periods=QUARTER,
    )
    board.alarm(
        "snowflake-lag",
        measured(SNOWFLAKE_LAG, "Maximum", **of),
        Says("Commits are seen too late in Snowflake.", "snowflake-lag"),
        above=board.deployment.alerts.published_late_s,
        periods=QUARTER,
    )
    board.alarm(
        "snowflake-stuck",
        measured(SNOWFLAKE_STUCK, **of),
        Says("Snowflake keeps stopping to refresh tables by itself.", "snowflake-stuck"),
        periods=QUARTER,
    )
    board.errors(
        "snowflake-not-reconciled",
        snowflake.reconcile.function,
        Says("Snowflake was not compared with the lake.", "snowflake-not-reconciled"),
    )
    board.put_aside(
        "snowflake-messages-failed",
        snowflake.feed.failed,
        Says("Commits could not be followed in Snowflake.", "snowflake-messages-failed"),
    )
