"""A second broker, and MirrorMaker that copies a topic of the running stack to it, until Ctrl-C; two files name both clusters."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli.embedded.processes import termination_as_exit
from cli.embedded.stack import current
from tests.standins.mirror.server import mirror, second_cluster

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "move"


@contextmanager
def files(folder: Path, former: str, copy: str) -> Iterator[None]:
    """`former.yaml`, and an overlay for `--env copy`, as long as the block runs."""
    named = {folder / "former.yaml": former, folder / "calve.copy.yaml": copy}
    for file, servers in named.items():
        file.write_text(f'kafka: {{bootstrap_servers: "{servers}"}}\n')
    try:
        yield
    finally:
        for file in named:
            file.unlink(missing_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.standins.mirror", description=__doc__)
    parser.add_argument("topic")
    options = parser.parse_args()
    stack = current(ROOT)
    if stack is None:
        sys.exit("the embedded stack is down. Start it: calve up")
    with termination_as_exit(), suppress(KeyboardInterrupt):
        print("starting a broker and MirrorMaker ...")  # noqa: T201 a script
        former = stack.bootstrap_servers
        with second_cluster() as copy, mirror(former, copy, options.topic), files(EXAMPLE, former, copy):
            print(f"topic {options.topic} is copied from {former} to {copy}\nstop: Ctrl-C")  # noqa: T201
            threading.Event().wait()
