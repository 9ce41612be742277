"""Answers to CloudFormation: every request to a custom resource gets one answer, or the stack hangs for an hour.

CloudFormation invokes asynchronously and repeats a request whose answer was lost, so every act must be idempotent. The request
holds a presigned URL, which is a credential: it is never logged.
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref.html
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve import http_client
from calve.errors import CalveError, Retryable

NEVER_MADE = "never-made"
"""Physical id of a resource with invalid properties; deleting it does nothing."""

ANSWER_MARGIN_S = 30.0
"""The rest of the function's time that sending the answer needs."""

ROOM = 1000
"""Bytes for a text about the work. CloudFormation refuses an answer above 4096 bytes."""
ATTEMPTS = 4
TIMEOUT_S = 5.0


Handler = Callable[[Mapping[str, Any], LambdaContext], None]


Act = Callable[[CloudFormationCustomResourceEvent, float], Mapping[str, str] | None]
"""Does the work of a request in so many seconds; returns the resource's attributes. Its error becomes the failure's reason."""


def fitting(text: str) -> str:
    """The beginning of the text that an answer has room for. JSON writes a letter beyond ASCII as six bytes or more."""
    text = text[:ROOM]
    while len(json.dumps(text)) > ROOM:
        text = text[:-1]
    return text


def serve(
    event: Mapping[str, Any],
    context: LambdaContext,
    act: Act,
    *,
    identify: Callable[[Mapping[str, Any]], str],
) -> str | None:
    """Do the work of CloudFormation's request and answer it; returns the reason of a failure.

    `identify` makes the physical id from the properties. It must be stable: CloudFormation deletes a resource whose id changed.

    Raises:
        Retryable: CloudFormation did not accept the answer.
    """
    request = CloudFormationCustomResourceEvent(dict(event))
    physical_id = request.physical_resource_id or NEVER_MADE
    attributes: Mapping[str, str] = {}
    reason = None
    try:
        if request.request_type != "Delete":
            physical_id = identify(request.resource_properties)
        if physical_id != NEVER_MADE:
            time_left_s = context.get_remaining_time_in_millis() / 1000 - ANSWER_MARGIN_S
            attributes = act(request, time_left_s) or {}
    except Exception as error:  # noqa: BLE001 an unanswered request holds the stack up for an hour
        kind = "" if isinstance(error, CalveError) else f"{type(error).__name__}: "
        said = f"{kind}{' '.join(str(error).split())}"
        reason = f"{fitting(said)} (log stream {context.log_stream_name})"
    _deliver(
        request.response_url,
        {
            "Status": "FAILED" if reason else "SUCCESS",
            "Reason": reason or "",
            "PhysicalResourceId": physical_id,
            "StackId": request.stack_id,
            "RequestId": request.request_id,
            "LogicalResourceId": request.logical_resource_id,
            "Data": dict(attributes),
        },
    )
    return reason


def handler_of(
    act: Act,
    *,
    identify: Callable[[Mapping[str, Any]], str],
    logger: Logger,
    tracer: Tracer,
    failed: str,
    done: str | None = None,
    about: Mapping[str, str] | None = None,
) -> Handler:
    """A handler that serves every request, and logs the event `failed` with the reason, or `done`.

    `about`: properties to log, by their names in the log.
    """

    @logger.inject_lambda_context(log_event=False)
    @tracer.capture_lambda_handler(capture_response=False)
    def handle(event: Mapping[str, Any], context: LambdaContext) -> None:
        properties = event.get("ResourceProperties", {})
        facts = {name: properties.get(key) for name, key in (about or {}).items()}
        facts["request"] = event.get("RequestType")
        if reason := serve(event, context, act, identify=identify):
            logger.error(failed, extra=facts | {"reason": reason})
        elif done:
            logger.info(done, extra=facts)

    return cast(Handler, handle)


def stack_status(stack_id: str, cloudformation: Any) -> str:
    """The status of the stack that asks: whether it is updated, rolled back or destroyed, no request says."""
    return str(cloudformation.describe_stacks(StackName=stack_id)["Stacks"][0]["StackStatus"])


def _deliver(url: str, answer: Mapping[str, Any]) -> None:
    body, why = json.dumps(answer).encode(), ""
    signed_for = {"Content-Type": ""}
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(2.0**attempt / 4)
        try:
            answered = http_client.send(url, method="PUT", headers=signed_for, body=body, timeout_s=TIMEOUT_S)
        except http_client.NoAnswer as error:
            why = error.message
            continue
        if answered.status < 300:
            return
        why = f"HTTP {answered.status}"
    raise Retryable(f"CloudFormation did not take the answer: {why}")
