"""Servers of an embedded stack are taken away for a while: stopped, or frozen."""

from __future__ import annotations

import os
import signal

from cli.embedded import kafka, processes
from cli.embedded import stack as embedded
from cli.embedded.layout import Layout
from cli.embedded.runtimes import find_java
from cli.embedded.stack import Server, Stack


def stop(stack: Stack, server: Server) -> None:
    """Its port refuses. The emulator alone loses its data by it."""
    processes.stop(_recorded(stack).processes[server])


def start(stack: Stack, server: Server) -> None:
    """A stopped server starts on its old port and its data; returns once it answers."""
    layout = Layout(stack.root)
    recorded = embedded.launch(layout, _recorded(stack), find_java(layout), server)
    embedded.wait_for(layout, recorded, [server])
    if (
        server == "kafka"
    ):  # broker and controller in one process: it starts without the SCRAM users that it knew
        kafka.add_scram_user(recorded)


def restart(stack: Stack, server: Server) -> None:
    stop(stack, server)
    start(stack, server)


def pause(stack: Stack, server: Server) -> None:
    """Its port accepts and never answers."""
    _send(stack, server, signal.SIGSTOP)


def resume(stack: Stack, server: Server) -> None:
    _send(stack, server, signal.SIGCONT)


def _send(stack: Stack, server: Server, number: signal.Signals) -> None:
    process = _recorded(stack).processes[server]
    assert processes.alive(process)
    os.killpg(process.pid, number)


def _recorded(stack: Stack) -> processes.State:
    found = processes.read_state(Layout(stack.root).stack_file)
    assert found is not None
    return found
