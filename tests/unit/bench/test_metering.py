"""CPU time is that of a process and of all its descendants, also of those that have ended or were left behind."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.cpu import cpu_of_session, of_session

BURN = "import time; t = time.process_time() + 0.5; exec('while time.process_time() < t: pass')"
PROGRAM = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}])
subprocess.run(["sh", "-c", '"$0" -c "$1" &', sys.executable, {BURN!r}])
{BURN}
print("done", flush=True)
sys.stdin.readline()
"""


def test_what_children_and_orphans_have_used_is_counted() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.reaper", sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        until = time.monotonic() + 30
        while len(list(of_session(process.pid))) > 2 and time.monotonic() < until:  # the orphan still works
            time.sleep(0.05)
        used = cpu_of_session(process.pid)
        process.communicate("\n")
    assert process.returncode == 0
    assert 1.5 <= used < 6  # with the starts of four interpreters, on whatever machine this is
