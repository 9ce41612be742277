"""Commits of the lake -> `feed`, by a queue; a schedule -> `reconcile`, which checks every table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.config.publishing import Snowflake
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.outputs.metrics import SNOWFLAKE_FAILED, SNOWFLAKE_LAG, SNOWFLAKE_STUCK
from lambdas.metering import NAMESPACE, add
from lambdas.publish_states import CommitBatch, PublishStates
from lambdas.snowflake.sql_api import service
from lambdas.snowflake_refresh.refresh import TARGET, Outcome, Refresher, SnowflakeTables, link_stuck

SERVICE = "snowflake_refresh"
AT_ONCE = 8
"""Checks mostly wait for Snowflake."""
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)


@cache
def refresher() -> Refresher:
    """Made once per process, and again after a failure: the key may have changed."""
    config = Snowflake.from_json(os.environ["SNOWFLAKE"])
    session = service(config, os.environ["KEY_SECRET"])
    states = PublishStates(os.environ["STATES_TABLE"], boto3.client("dynamodb"))
    return Refresher(SnowflakeTables(session, config), boto3.client("glue"), boto3.client("s3"), states)


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def feed(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Check each table in a batch of messages once; returns the messages to deliver again."""
    metrics.add_dimension("deployment", os.environ["CALVE_NAME"])
    batch = CommitBatch.of(event)
    outcomes = _look(filter(_is_published, batch.about))
    return batch.answer({each.table for each in outcomes if each.retryable})


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def reconcile(event: dict[str, Any], context: LambdaContext) -> None:
    """Check every table that a deploy or a commit has named.

    This finds lost events, and tables that Snowflake no longer refreshes by itself.
    """
    metrics.add_dimension("deployment", os.environ["CALVE_NAME"])
    known = [TableName(*each.table.split(".")) for each in refresher().states.all(TARGET)]
    outcomes = _look(known)
    stuck = [each for each in outcomes if each.stuck]
    tables = refresher().tables
    if tables.config.linked and (why := link_stuck(tables.session, tables.config)):
        logger.error("snowflake.link_stuck", extra={"reason": why})
        add(metrics, SNOWFLAKE_STUCK)
    add(metrics, SNOWFLAKE_STUCK, len(stuck))
    logger.info("snowflake.reconciled", extra={"tables": len(outcomes), "stuck": len(stuck)})


def _look(tables: Iterable[TableName]) -> list[Outcome]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(refresher().look, tables))
    for each in outcomes:
        about = {"table": str(each.table)}
        if each.lag_s is not None:
            add(metrics, SNOWFLAKE_LAG, each.lag_s)
            logger.info("snowflake.synced", extra=about | {"lag_s": each.lag_s})
        if each.stuck:
            logger.warning("snowflake.stuck", extra=about | {"reason": each.stuck})
        if each.error:
            logger.error("snowflake.not_synced", extra=about | {"error": type(each.error).__name__})
            refresher.cache_clear()
    add(metrics, SNOWFLAKE_FAILED, sum(each.error is not None for each in outcomes))
    return outcomes


def _is_published(table: TableName) -> bool:
    return not table.table.endswith(DEAD_LETTERS_SUFFIX)
