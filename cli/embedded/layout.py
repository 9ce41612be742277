"""The paths of the embedded stack's files below `.calve/` of the project. Downloads are in the user's cache."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
"""The sources of calve: what is deployed is made from them."""


class Layout:
    """The paths below one project directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / ".calve"  # all that is made here; safe to remove while the stack is down
        self.stack_file = self.state / "stack.json"  # the record of what was started
        self.lock_file = self.state / "lock"  # held while the stack is being started or stopped
        self.logs = self.state / "logs"  # one log per server, of the newest start
        self.java_home = self.state / "java"  # the shim around the JRE of the wheel
        self.demo = self.state / "demo"  # the newest demo's mail
        self.run = self.state / "run"  # the servers' configuration and data; emptied at each start and stop
        self.deploy = self.run / "deploy"  # its configuration, the synthesized stacks, their outputs
        self.job_code = self.run / "job-code"  # of deployed jobs; compiled code stays for the next run


def project_root(start: Path | None = None) -> Path:
    """Find the nearest folder, upwards, with a `.calve`, so that folders below share a stack; else with a `calve.yaml`.

    Without either, return the start itself.
    """
    return above(".calve", start) or above("calve.yaml", start) or (start or Path.cwd()).resolve()


def above(name: str, start: Path | None = None) -> Path | None:
    """The nearest folder, upwards, that has an entry of this name."""
    here = (start or Path.cwd()).resolve()
    return next((folder for folder in (here, *here.parents) if (folder / name).exists()), None)
