"""Runs the commands of docs/quickstart.md. `python -m tests.quickstart` writes the page again, with what they print.

Blocks that begin with ```console run are run, in this order, in one folder; those with a title are files that the reader writes.
Commands print as on a terminal of 100 columns. Of standard error, errors and the lines of `calve init` are kept.
"""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "quickstart.md"
BLOCK = re.compile(r'```(\w+)(?: (run)| title="([^"]+)")\n(.*?)```\n', re.DOTALL)
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BEFORE, AFTER = re.compile(r"inferred |wrote |next  "), re.compile(r"error: |  Fix: ")
"""Lines of standard error that the page has, above and below the others."""
LIMIT_S = 300
VARYING = [
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\S*/\.calv\S*", "PATH"),
    (r"http://127\S*(?: *│\n│ [\w.-]{20,} *│)?", "URL"),
    (r"\w{3,9}, \d\d? \w+ \d{4},? [\d:]+ (?:\+0000|\(UTC\))", "TIME"),
    (r"\b(?:\d[\d,.]* ?(?:ms|s|m|h|d|B|kB|KB|MB))+\b", "SIZE"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*(?:\+00(?::00)?|Z)?", "TIME"),
    (r"\b[0-9a-f]{16,64}\b", "DIGEST"),
    (r"[\w-]{8,}-(?:[0-9A-F]{13}|[0-9A-Z]{12,14})\b", "NAME"),
    (r"[ ─╭╮╰╯│]+", " "),
]
"""What differs from run to run, and its place in a comparison."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the page, with the lines below it."""

    command: str
    shown: str


def steps(block: str) -> list[Step]:
    """The commands of a block, each with its output."""
    found = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [
        Step(command, shown.strip("\n")) for command, _, shown in (each.partition("\n") for each in found)
    ]


def run(page: str, folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[Step, str]]:
    """Do what a reader of the page does, in the folder; each command with what it prints now."""
    for block in BLOCK.finditer(page):
        _, runs, title, text = block.groups()
        if title:
            (folder / title).write_text(text)
        for each in steps(text) if runs else ():
            yield each, printed(each.command, folder, environment)


def printed(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={**environment, "NO_COLOR": "1", "TERM": "xterm", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=said,
        ) as process:
            os.close(theirs)
            text = b"".join(iter(lambda: _read(ours), b"")).decode()
            process.wait(LIMIT_S)
        os.close(ours)
        said.seek(0)
        events = said.readlines()
    above, below = (filter(pattern.match, events) for pattern in (BEFORE, AFTER))
    shown = [*above, *ANSI.sub("", text.replace("\r", "")).splitlines(), *below]
    return "\n".join(line.rstrip() for line in shown).strip("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux: the other side is closed
        return b""


def alike(text: str) -> str:
    """The text without all that differs from run to run."""
    for pattern, place in VARYING:
        text = re.sub(pattern, place, text)
    return text


def written(page: str, ran: Iterator[tuple[Step, str]]) -> str:
    """The page with what its commands print now."""

    def block(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        shown = [
            f"$ {each.command}\n{now}\n" if now else f"$ {each.command}\n"
            for each, now in (next(ran) for _ in steps(found[4]))
        ]
        return f"```console run\n{''.join(shown)}```\n"

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shop"
        folder.mkdir()
        found = list(run(page := PAGE.read_text(), folder, os.environ))
        sys.stdout.write(written(page, iter(found)).replace(str(folder), "~/shop"))
