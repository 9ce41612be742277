"""The machines of a run: a driver and workers that share no file, not even with this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.processes import HOST, kill_group
from cli.embedded.runtimes import find_java
from tests.standins.hostile_glue.words import SPARK, strings_of_spark

ALONE = """
mount -t tmpfs -o ro none "$HOME"
for folder in $HIDDEN; do mount -t tmpfs -o ro none "$folder"; done
unset HIDDEN
exec "$@"
"""
"""Runs in a mount namespace of its own, so that even root writes nothing into its home, and sees no other machine."""
OURS = ("calve", "cli", "glue_jobs", "lambdas", "stacks", "tests")
PACKAGES = ("boto3==1.44.5", "numpy==2.2.6", "pyarrow==19.0.1")
"""Those of Glue's Python that the jobs use."""
MEMORY = "1g"


def isolates() -> bool:
    """Whether this machine lets a process have mounts of its own."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True).returncode


def installed_python() -> str | None:
    """Glue 6.0's version of Python on this machine, if any."""
    named = (*map(str, sorted(Path(sys.base_prefix).parent.glob("3.13.*/bin/python"))), "/usr/bin/python3.13")
    return next((each for each in named if Path(each).exists()), None)


def python() -> str:
    """That Python with Glue's packages, and without ours. The first call downloads them."""
    folder = Layout(CHECKOUT).state / "glue-python"
    if not (folder / "made").exists():
        subprocess.run(
            [str(installed_python()), "-m", "venv", "--clear", "--without-pip", str(folder)], check=True
        )
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
        subprocess.run([*pip, *PACKAGES], check=True)
        (folder / "made").touch()
    return str(folder / "bin" / "python")


@dataclass
class Machines:
    """All machines of one run, below one folder. environment: what Glue gives to each of them."""

    folder: Path
    environment: Mapping[str, str]
    names: tuple[str, ...] = ("driver", "worker-1", "worker-2")
    java: str = field(init=False)

    def __post_init__(self) -> None:
        self.java = find_java(Layout(CHECKOUT)).executable
        for name in self.names:
            for part in ("home", "tmp", "work"):
                (self.folder / name / part).mkdir(parents=True)

    @contextmanager
    def process(self, name: str, command: Sequence[str], log: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process of this machine, in its working folder. Its output goes to `log`.out and `log`.err."""
        own = self.folder / name
        hidden = [self.folder / each for each in self.names if each != name] + [
            CHECKOUT / each for each in OURS
        ]
        given = {
            **self.environment,
            "HOME": str(own / "home"),
            "TMPDIR": str(own / "tmp"),
            "SPARK_LOCAL_DIRS": str(own / "tmp"),
            "HIDDEN": " ".join(map(str, hidden)),
        }
        with (
            (self.folder / f"{log}.out").open("wb") as out,
            (self.folder / f"{log}.err").open("wb") as errors,
        ):
            process = subprocess.Popen(
                ["unshare", "-rm", "sh", "-ec", ALONE, "sh", *command],
                cwd=own / "work",
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                kill_group(process.pid)
                process.wait()

    def tasks(self, worker: str) -> int:
        """How many tasks this worker's executors have finished."""
        logs = (self.folder / worker / "work").glob("app-*/*/stderr")
        return sum(each.read_text(errors="replace").count("Finished task") for each in logs)

    def spark_class(self, name: str, *arguments: str) -> list[str]:
        return [self.java, "-Xmx256m", *OPENED, "-cp", f"{SPARK}/jars/*", name, *arguments]

    def driver_jvm(
        self, jars: Sequence[Path], conf: Mapping[str, str], arguments: Sequence[str]
    ) -> list[str]:
        """The JVM that runs the script. No setting of Spark becomes an option of it."""
        settings = [f"-D{name}={value}" for name, value in conf.items()]
        paths = os.pathsep.join([*map(str, jars), f"{SPARK}/jars/*"])
        begin = [self.java, f"-Xmx{MEMORY}", *OPENED, f"-Djava.io.tmpdir={self.folder / 'driver' / 'tmp'}"]
        return [*begin, *settings, "-cp", paths, "org.apache.spark.deploy.PythonRunner", *arguments]


OPENED = strings_of_spark("JavaModuleOptions", rb"--add-opens=[\w./]+=ALL-UNNAMED|-D[a-z][\w.]+=\w+")
"""What Spark itself needs of a JVM; Glue gives it, too."""
LOOPBACK = {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
