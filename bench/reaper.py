"""`python -m bench.reaper COMMAND...`: run a command so that no CPU time of its descendants is lost.

Whatever a descendant leaves behind becomes this process's child, so that its time ends up in `/proc/<this>/stat`, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Run the command, wait for it and for everything that it has left behind; gives its exit code."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt what its children leave behind")
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    code = 1
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(abs(main(sys.argv[1:])))
