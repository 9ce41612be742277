"""AWS on this machine: ministack in its own environment, with its objects in memory.

That environment is also the runtime of the emulated functions: like AWS's, it has boto3.
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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


def emulator(layout: Layout) -> Installation:
    lock = f"{sys.version_info[:2]} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}"
    return Installation("the AWS emulator", layout.aws_venv, lock)


def install(layout: Layout, progress: Progress) -> None:
    python = str(layout.aws_venv / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install"]
    steps = [
        [sys.executable, "-m", "venv", "--without-pip", str(layout.aws_venv)],
        [*pip, "--require-hashes", "-r", str(LOCK)],
    ]
    emulator(layout).install(steps, layout.logs / "aws-install.log", progress, then="calve up")


def environment(port: int, *, folder: Path) -> dict[str, str]:
    """Return the emulator's settings; by default it listens on every interface and opens an MQTT port."""
    return {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": HOST,
        "MINISTACK_HOST": HOST,
        "MINISTACK_REGION": REGION,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
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
def client(service: str, endpoint: str) -> Any:
    """A boto3 client of an emulated service, without the user's own AWS configuration.

    Threads may share it. It is made once: boto3 reads megabytes of definitions for each.
    """
    import boto3

    session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name=REGION)
    return session.client(service, endpoint_url=endpoint)


def reachable(url: str, endpoint: str) -> str:
    """The emulator's address of a Function URL, whose own host does not resolve."""
    parts = urlsplit(url)
    host, _, _ = (parts.hostname or "").partition(".")
    return f"{endpoint}/_aws/lambda-url/{host}{parts.path}"
