"""What the deployed doctor sees from where the jobs stand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.config import Config

from cli.doctor.account import DEPLOY
from cli.lake import aws_errors
from lambdas.doctor.finding import Finding

if TYPE_CHECKING:
    from cli.account import Account

# The function waits for what does not answer.
PATIENT = Config(connect_timeout=5, read_timeout=130, retries={"total_max_attempts": 1})


def seen_from_aws(account: Account, function: str | None) -> list[Finding]:
    """Its findings.

    Raises:
        Retryable, Fatal: AWS does not answer, or does not let this user invoke it.
    """
    if function is None:
        return [Finding("doctor", "fail", "it is not deployed: the stacks are of an older release", DEPLOY)]
    with aws_errors(f"the function {function}"):
        answer = account.client("lambda", PATIENT).invoke(FunctionName=function, Payload=b"{}")
        said = json.loads(answer["Payload"].read())
    if "FunctionError" in answer:
        why = said.get("errorMessage") or said.get("errorType")
        return [Finding("doctor", "fail", f"{function} failed: {why}", "its log says more")]
    return [Finding(**each) for each in said]
