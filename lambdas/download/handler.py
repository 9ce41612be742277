"""Function URL -> `Downloads`. Paths, headers and answers are never logged or traced: they hold tokens."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import LambdaFunctionUrlEvent, event_source
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from calve.outputs.metrics import LINK_DOWNLOADS, LINK_FAULTS, LINK_PAGES, Metric
from lambdas.download.download import NOT_FOUND, Answer, Downloads, Settings
from lambdas.links import Links
from lambdas.metering import add_alone
from lambdas.tokens import BadKeys, Keyring

SERVICE = "download"
logger = Logger(service=SERVICE, log_uncaught_exceptions=False)
tracer = Tracer(service=SERVICE)


@cache
def downloads() -> Downloads:
    """Made once per process."""
    settings = Settings.read(os.environ)
    keyring = Keyring(settings.keys_secret, SecretsProvider(boto3_client=boto3.client("secretsmanager")))
    # The bucket's regional host: the global one redirects, and a redirected signature is invalid.
    config = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
    return Downloads(
        bucket=settings.bucket,
        keyring=keyring,
        links=Links(settings.links_table, boto3.client("dynamodb")),
        s3=boto3.client("s3", config=config),
        clock=time.time,
    )


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False, capture_error=False)
@event_source(data_class=LambdaFunctionUrlEvent)
def handle(event: LambdaFunctionUrlEvent, context: LambdaContext) -> dict[str, Any]:
    """Answer one request. If a system is down, the answer is that of a missing link, and it counts as a fault."""
    method = event.request_context.http.method
    try:
        answer = downloads().answer(method, event.raw_path)
    except (ClientError, BotoCoreError, GetParameterError, BadKeys) as error:
        answer = NOT_FOUND
        logger.error("link.fault", extra={"kind": type(error).__name__})  # noqa: TRY400  a traceback could show the token
        _count(LINK_FAULTS)
    _record(answer)
    return answer.as_event(method)


def _record(answer: Answer) -> None:
    if answer.event is None:
        return
    logger.info(answer.event, extra=answer.facts)
    _count({"link.page": LINK_PAGES, "link.download": LINK_DOWNLOADS}[answer.event])


def _count(metric: Metric) -> None:
    add_alone(metric, service=SERVICE, deployment=os.environ["CALVE_NAME"])
