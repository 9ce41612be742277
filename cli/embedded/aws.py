"""AWS on this machine: ministack in its own environment, with its objects in memory.

That environment is also the runtime of the emulated functions: like AWS's, it has boto3.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from calve.names import OWNER_TAG
from cli.embedded.layout import Layout
from cli.embedded.processes import HOST, no_proxy
from cli.embedded.runtimes import Installation
from cli.progress import Progress

LOCK = Path(__file__).with_name("ministack.txt")
WRAPPER = Path(__file__).with_name("ministack_plus.py")
REGION = "us-east-1"
ACCOUNT = "000000000000"
BUCKET = "calve-lake"
ACCESS_KEY = SECRET_KEY = "test"  # noqa: S105  what the emulator expects


def emulator() -> Installation:
    """The emulator's own environment: its pins contradict those of calve. It needs the Python that made it."""
    made_by = f"{sys.base_prefix} {sys.version_info[:2]}".encode()
    return Installation("the AWS emulator", "aws", hashlib.sha256(made_by + LOCK.read_bytes()).hexdigest())


def install(layout: Layout, progress: Progress) -> None:
    folder = emulator().folder
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install"]
    steps = [
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "--require-hashes", "-r", str(LOCK)],
    ]
    emulator().install(steps, layout.logs / "aws-install.log", progress, then="calve up")


def environment(port: int, *, folder: Path) -> dict[str, str]:
    """Return the emulator's settings; by default it listens on every interface and opens an MQTT port."""
    return {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": HOST,
        "MINISTACK_HOST": HOST,
        "MINISTACK_REGION": REGION,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "AUTH": "true",  # a function or a job may do what its role's policies allow; the stack's own key is root's
        "LAMBDA_EXECUTOR": "local",
        "LOG_LEVEL": "WARNING",
        "POWERTOOLS_LOG_LEVEL": "INFO",  # as on AWS; its functions would take the emulator's LOG_LEVEL for theirs
        "POWERTOOLS_TRACE_DISABLED": "true",  # its functions inherit this; there is no X-Ray
        "TMPDIR": str(folder),
        **no_proxy(),
    }


def url(port: int) -> str:
    return f"http://{HOST}:{port}"


@cache
def client(
    service: str, endpoint: str, key: str = ACCESS_KEY, secret: str = SECRET_KEY, token: str = ""
) -> Any:
    """A boto3 client of an emulated service, without the user's own AWS configuration.

    Threads may share it. It is made once: boto3 reads megabytes of definitions for each.
    """
    import boto3

    session = boto3.Session(key, secret, token or None, region_name=REGION)
    return session.client(service, endpoint_url=endpoint)


def make_bucket(name: str, owner: str, endpoint: str) -> None:
    """Make a deployment's bucket if it is absent, with the deployment's mark: `calve deploy` adopts it with its tables."""
    s3 = client("s3", endpoint)
    if name not in {each["Name"] for each in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=name)
        tags = {"TagSet": [{"Key": OWNER_TAG, "Value": owner}]}
        s3.put_bucket_tagging(Bucket=name, Tagging=tags)


def acting_as(role: str, service: str, endpoint: str) -> dict[str, str]:
    """The environment of a process that acts as a role. The service assumes it, so the role must trust that service.

    It may for twelve hours; on AWS the service renews its session.
    """
    sts, lasts_s = client("sts", endpoint), 12 * 3600
    made = sts.assume_role(RoleArn=role, RoleSessionName=service, DurationSeconds=lasts_s)["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": made["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"],
        "AWS_SESSION_TOKEN": made["SessionToken"],
    }


def open_queue(name: str, endpoint: str) -> tuple[str, str]:
    """Make a queue to which topics and rules may write; its URL and ARN."""
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"
    anybody = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [anybody]})
    made = client("sqs", endpoint).create_queue(QueueName=name, Attributes={"Policy": policy})
    return str(made["QueueUrl"]), arn


def reachable(url: str, endpoint: str) -> str:
    """The emulator's address of a Function URL, whose own host does not resolve."""
    parts = urlsplit(url)
    host, _, _ = (parts.hostname or "").partition(".")
    return f"{endpoint}/_aws/lambda-url/{host}{parts.path}"
