"""The record of what was started, by which any later command finds it again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cli.embedded.processes import Process

VERSION = 1


@dataclass(frozen=True, slots=True)
class State:
    """Ports, processes and credentials of one stack; `ready` once all of it has answered."""

    cluster_id: str
    sasl_password: str = field(repr=False)
    ports: dict[str, int]
    processes: dict[str, Process] = field(default_factory=dict)
    ready: bool = False
    sasl_user: str = "calve"

    def with_process(self, name: str, process: Process) -> State:
        """Return the state with this process in the server's place."""
        return replace(self, processes={**self.processes, name: process})


def read(file: Path) -> State | None:
    """Return the recorded state; None when there is none or it cannot be used."""
    try:
        document = json.loads(file.read_text())
        if document.pop("version") != VERSION:
            return None
        processes = {name: Process(**value) for name, value in document.pop("processes").items()}
        return State(**document, processes=processes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(file: Path, state: State) -> None:
    """Replace the record in one step; only its owner may read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(json.dumps({"version": VERSION, **asdict(state)}, indent=2))
    new.replace(file)
