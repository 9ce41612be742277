"""Pinned packages as pip unpacks them, for where they will run.

No Docker: wheels are taken for that platform, whatever this machine is. They are kept in `.calve/functions` by the hash of what
was asked for, so that a second synth installs nothing.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calve.errors import Fatal

if TYPE_CHECKING:
    from stacks.bundling import Runtime

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".calve" / "functions"
PLATFORMS = {
    "arm64": ("manylinux2014_aarch64", "manylinux_2_28_aarch64"),
    "x86_64": ("manylinux2014_x86_64", "manylinux_2_28_x86_64"),
}


@dataclass(frozen=True, slots=True)
class Wheels:
    """What a file of requirements names, without what matches `pruned`."""

    requirements: Path
    runtime: Runtime
    pruned: tuple[str, ...]

    def hash(self) -> str:
        """A hash of all that decides what is installed, known before anything is."""
        wanted = (self.requirements.read_text(), *self.pruned, repr(self.runtime))
        return hashlib.sha256("\0".join(wanted).encode()).hexdigest()

    def folder(self) -> Path:
        """The folder of installed and pruned packages; made where it is not there.

        Raises:
            Fatal: pip could not install them.
        """
        folder = CACHE / self.hash()[:32]
        if not folder.is_dir():
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as made:
                installed = Path(made) / "installed"
                self._install(installed)
                self._prune(installed)
                try:
                    installed.rename(folder)
                except OSError:  # another synth was faster
                    if not folder.is_dir():
                        raise
        return folder

    def _install(self, target: Path) -> None:
        command = [
            *(
                sys.executable,
                "-m",
                "pip",
                "--disable-pip-version-check",
                "--quiet",
                "install",
                "--no-compile",
            ),
            *("--only-binary=:all:", "--require-hashes", "--target", str(target)),
            *("--no-deps", "-r", str(self.requirements)),
        ]
        if not self.runtime.native:
            command += ["--implementation", "cp", "--python-version", self.runtime.python]
            for tag in PLATFORMS[self.runtime.architecture]:
                command += ["--platform", tag]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
            raise Fatal(
                f"the packages of {self.requirements.relative_to(ROOT)} could not be installed: {last[0]}",
                fix="check the network and pip (python3 -m pip --version), then synthesize again",
            )

    def _prune(self, folder: Path) -> None:
        for pattern in self.pruned:
            for path in list(folder.glob(pattern)):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
