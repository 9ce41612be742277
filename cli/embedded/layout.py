"""The paths of the embedded stack's files, all below `.calve/` of the project."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
"""The sources of calve: what is deployed is made from them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one project directory."""

    root: Path

    @property
    def state(self) -> Path:
        """Everything made or downloaded here; safe to remove while the stack is down."""
        return self.root / ".calve"

    @property
    def jars(self) -> Path:
        """One folder per class path."""
        return self.state / "jars"

    @property
    def logs(self) -> Path:
        """One log per server, of the newest start."""
        return self.state / "logs"

    @property
    def run(self) -> Path:
        """The servers' configuration and data; emptied whenever the stack starts or stops."""
        return self.state / "run"

    @property
    def stack_file(self) -> Path:
        return self.state / "stack.json"

    @property
    def lock_file(self) -> Path:
        """Held while the stack is being started or stopped."""
        return self.state / "lock"

    @property
    def aws_venv(self) -> Path:
        """The AWS emulator's own environment: its pins contradict those of calve."""
        return self.state / "aws-venv"

    @property
    def cdk(self) -> Path:
        return self.state / "cdk"

    @property
    def deploy(self) -> Path:
        """The files of a deploy into the stack: its configuration, the synthesized stacks, their outputs."""
        return self.run / "deploy"

    @property
    def job_code(self) -> Path:
        """The deployed code of jobs. Each run finds the code that an earlier run compiled."""
        return self.run / "job-code"

    @property
    def demo(self) -> Path:
        return self.state / "demo"

    @property
    def java_home(self) -> Path:
        return self.state / "java"


def project_root(start: Path | None = None) -> Path:
    """Find the nearest folder, upwards, with a `calve.yaml` or a `.calve`; else return the start itself."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "calve.yaml").is_file() or (folder / ".calve").is_dir():
            return folder
    return here
