"""A run of a deployed job, started as Glue starts one: `with started(stack, NAME, FOLDER) as run: run.wait()`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.embedded import aws
from cli.embedded.processes import HOST, free_ports
from cli.embedded.stack import Stack, environment
from cli.run.jobs import Definition
from tests.standins.hostile_glue.machines import LOOPBACK, MEMORY, Machines, python
from tests.standins.hostile_glue.words import FILES, SPARK, launched

PY_FILES, _, JARS, _ = FILES
RUN_SCRIPT = """\
import runpy, sys
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    sys.exit(end.code or 1)
"""
"""Glue's Python begins with a script of its own, in which every SystemExit is a failure."""


@dataclass
class Started:
    """A run. id: Glue's. prefix: of its log groups."""

    id: str
    prefix: str
    machines: Machines
    process: subprocess.Popen[bytes]
    logs: Any

    def events(self) -> list[dict[str, Any]]:
        lines = (self.machines.folder / "driver.out").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def wait(self, seconds: float) -> int:
        """Its exit code. Its output and errors go to the log groups that Glue documents."""
        try:
            return self.process.wait(seconds)
        finally:
            for stream, file in (("output", "driver.out"), ("error", "driver.err")):
                self._send(stream, (self.machines.folder / file).read_text(errors="replace"))

    def _send(self, stream: str, text: str) -> None:
        where = {"logGroupName": f"{self.prefix}/{stream}", "logStreamName": self.id}
        self.logs.create_log_stream(**where)
        now = int(time.time() * 1000)
        if said := [{"timestamp": now, "message": line} for line in text.splitlines() if line]:
            self.logs.put_log_events(**where, logEvents=said[:5000])


@contextmanager
def started(stack: Stack, name: str, folder: Path, **arguments: str) -> Iterator[Started]:
    """Start the job that is deployed under this name, with further arguments of this run.

    Raises Refused: a word of its arguments belongs to no option.
    """
    definition = Definition.deployed(aws.client("glue", stack.aws_endpoint), name)
    run = f"jr_{time.time_ns():x}"
    own = {"--scriptLocation": definition.script, "--JOB_NAME": name, "--JOB_RUN_ID": run}
    launch = launched(
        {**definition.arguments, **own, **{f"--{key}": each for key, each in arguments.items()}}
    )
    role = aws.acting_as(definition.role, "glue.amazonaws.com", stack.aws_endpoint)
    machines = Machines(folder, environment(stack) | _of_glue() | role)
    s3 = aws.client("s3", stack.aws_endpoint, *role.values())
    brought = {
        option: [_fetch(s3, uri, folder / "driver" / "work") for uri in uris]
        for option, uris in launch.files.items()
    }
    (folder / "driver" / "tmp" / "runscript.py").write_text(RUN_SCRIPT)
    code = ",".join(map(str, brought[PY_FILES]))
    (port,) = free_ports(1)
    conf = launch.conf | LOOPBACK | {
        "spark.master": f"spark://{HOST}:{port}",
        "spark.app.name": name,
        "spark.executor.memory": MEMORY,
        "spark.executor.cores": "1",
        "spark.jars": ",".join(map(str, brought[JARS])),
        "spark.files": code,
        "spark.submit.pyFiles": code,
    }  # fmt: skip
    script = [str(folder / "driver" / "tmp" / "runscript.py"), code, *map(str, brought["--scriptLocation"])]
    driver = machines.driver_jvm(brought[JARS], conf, [*script, *launch.script_arguments])
    with ExitStack() as running:
        for each, command in _cluster(machines, port).items():
            running.enter_context(
                machines.process(each.partition(":")[0], command, each.partition(":")[2] or each)
            )
        process = running.enter_context(machines.process("driver", driver, "driver"))
        prefix = definition.arguments["--custom-logGroup-prefix"]
        yield Started(run, prefix, machines, process, aws.client("logs", stack.aws_endpoint, *role.values()))


def _of_glue() -> dict[str, str]:
    """Python and Spark as Glue has them."""
    pythons = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), python())
    return {"SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13", **pythons}


def _cluster(machines: Machines, port: int) -> dict[str, list[str]]:
    """A master beside the driver, and a worker on each other machine."""
    of, at = "org.apache.spark.deploy", ["--host", HOST, "--webui-port", "0"]
    made = {"driver:master": machines.spark_class(f"{of}.master.Master", *at, "--port", str(port))}
    for name in machines.names[1:]:
        work = ["--work-dir", str(machines.folder / name / "work"), "--cores", "1", "--memory", MEMORY]
        made[name] = machines.spark_class(f"{of}.worker.Worker", *at, *work, f"spark://{HOST}:{port}")
    return made


def _fetch(s3: Any, uri: str, folder: Path) -> Path:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    file = folder / Path(key).name
    s3.download_file(bucket, key, str(file))
    return file
