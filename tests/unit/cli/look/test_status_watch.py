"""`calve status --watch` on a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from calve.errors import ConfigError
from cli.main import app

PATIENCE_S = 60.0
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
PROGRAM = """
import signal
from datetime import UTC, datetime
from calve.errors import Retryable
from cli.console import Console
from cli.look.status import command
from cli.look.status.overview import Overview
from cli.look.health import TableStatus

signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may have it ignored
command.EVERY_S = 0.1
looks = []

def look():
    looks.append(1)
    if len(looks) == 2:
        raise Retryable("the catalog does not answer")
    return Overview("shop", datetime.now(UTC), [TableStatus("main", "shop.orders", "orders", "running", rows=len(looks))])

command.watch_screen(Console(), look)
print("ended after", len(looks) > 2)
"""


@dataclass
class Terminal:
    """A program on a terminal, and what it has written there."""

    keyboard: int
    process: subprocess.Popen[bytes]
    text: str = ""

    def until(self, wanted: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while wanted not in self.text:
            assert time.monotonic() < end, self.text
            if select.select([self.keyboard], [], [], 0.2)[0]:
                self.text += os.read(self.keyboard, 65_536).decode(errors="replace")


def start() -> Terminal:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    return Terminal(ours, process)


@pytest.mark.parametrize("end", ["q", "ctrl-c"])
def test_the_screen_is_drawn_again_until_somebody_ends_it_and_the_terminal_is_as_before(end: str) -> None:
    terminal = start()
    before = termios.tcgetattr(terminal.keyboard)
    try:
        terminal.until("the catalog does not answer")
        drawn = terminal.text.count("orders")
        while terminal.text.count("orders") < drawn + 3:
            terminal.text += os.read(terminal.keyboard, 65_536).decode(errors="replace")
        if end == "q":
            os.write(terminal.keyboard, b"q")
        else:
            terminal.process.send_signal(signal.SIGINT)
        terminal.until("ended after True")
        assert terminal.process.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(terminal.keyboard)[3] == before[3]
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.keyboard)
    assert terminal.text.index(ENTER) < terminal.text.index("orders") < terminal.text.rindex(LEAVE)
    assert "Traceback" not in terminal.text


def test_without_a_terminal_it_is_refused() -> None:
    answer = CliRunner().invoke(app, ["status", "--watch"])
    assert isinstance(answer.exception, ConfigError)
    assert "--watch draws on a terminal" in answer.exception.message
