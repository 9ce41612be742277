"""The analyst's Monday morning: the deployed schedule fires, a mail comes, its button gives a file."""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

import urllib3

from calve.errors import CalveError
from cli.embedded import aws
from lambdas.csv_export.window import previous

if TYPE_CHECKING:
    from pathlib import Path

    from cli.embedded.stack import Stack

PATIENCE_S = 60
LINK = re.compile(r"https://\S+\.lambda-url\.\S+")


@dataclass(frozen=True, slots=True)
class Mail:
    """What SNS hands to its subscribers."""

    subject: str
    text: str

    def save(self, folder: Path, export: str, recipient: str) -> Path:
        """Write it as a file that mail programs open."""
        message = EmailMessage()
        message["From"] = "AWS Notifications <no-reply@sns.amazonaws.com>"
        message["To"] = recipient
        message["Subject"] = self.subject
        message.set_content(self.text)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{export}.eml"
        file.write_bytes(bytes(message))
        return file


def last_week(now: datetime, zone: str = "UTC") -> tuple[datetime, datetime]:
    """The window of an export whose schedule fires now."""
    from zoneinfo import ZoneInfo

    week = previous("previous_week", now, ZoneInfo(zone))
    return week.start, week.end


class Monday:
    """A deployment's export, its mailbox and its link; `name` is the deployment's."""

    def __init__(self, stack: Stack, name: str, export: str) -> None:
        self._stack, self._name, self._export = stack, name, export
        self._queue = ""

    def _client(self, service: str) -> Any:
        return aws.client(service, self._stack.aws_endpoint)

    def subscribe(self) -> None:
        """Have a queue get what the recipients get: the emulator sends no mail."""
        name = f"{self._name}-mails-{uuid.uuid4().hex[:8]}"
        self._queue = self._client("sqs").create_queue(QueueName=name)["QueueUrl"]
        resources = self._client("cloudformation").describe_stack_resources(StackName=f"{self._name}-exports")
        for each in resources["StackResources"]:
            if each["ResourceType"] == "AWS::SNS::Topic":
                self._client("sns").subscribe(
                    TopicArn=each["PhysicalResourceId"],
                    Protocol="sqs",
                    Endpoint=f"arn:aws:sqs:{aws.REGION}:{aws.ACCOUNT}:{name}",
                )

    def fire(self) -> dict[str, Any]:
        """Do now what the schedule does on Mondays; returns the export as it is deployed."""
        scheduler = self._client("scheduler")
        made = scheduler.get_schedule(Name=f"{self._name}-{self._export}", GroupName=self._name)
        scheduler.create_schedule(
            Name=f"demo-{uuid.uuid4().hex[:8]}",
            GroupName=self._name,
            ScheduleExpression=f"at({datetime.now(UTC) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S})",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=made["Target"],
            ActionAfterCompletion="DELETE",
        )
        export: dict[str, Any] = json.loads(made["Target"]["Input"])["export"]
        return export

    def mail(self) -> Mail:
        """The next mail.

        Raises:
            CalveError: none came.
        """
        sqs = self._client("sqs")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = sqs.receive_message(QueueUrl=self._queue, WaitTimeSeconds=5)
            for message in answer.get("Messages", []):
                body = json.loads(message["Body"])
                return Mail(body["Subject"], body["Message"])
        raise CalveError(
            f"no mail of {self._export} came in {PATIENCE_S} s",
            fix="calve export list says what was delivered before: a file that says the same is not mailed again",
        )

    def page(self, mail: Mail) -> str:
        """The address of the mail's page, which on this machine is the emulator's.

        Raises:
            CalveError: the mail has no link.
        """
        found = LINK.search(mail.text)
        if found is None:
            raise CalveError("the mail has no link")
        return aws.reachable(found[0], self._stack.aws_endpoint)

    def download(self, page: str) -> str:
        """The file, as a browser gets it: the page, its button, the address that lives a minute.

        Raises:
            CalveError: one of them is refused.
        """
        self._request("GET", page, 200)
        file = self._request("POST", page, 302).headers["location"]
        return self._request("GET", file, 200).data.decode()

    def _request(self, method: str, url: str, expected: int) -> urllib3.BaseHTTPResponse:
        answer = urllib3.request(method, url, redirect=False)
        if answer.status != expected:
            raise CalveError(f"{method} of the mail's link is answered with {answer.status}")
        return answer
