"""`calve run-job` with a small job: what is run is what was deployed, and nothing of the checkout."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calve.errors import ConfigError, Fatal
from cli.console import Console
from cli.embedded import aws
from cli.embedded.layout import Layout
from cli.embedded.stack import Stack
from cli.run.jobs import run_deployed
from tests.integration.support import rights

SCRIPT = """
import json, os, pathlib, sys
import calve, deployed_only, glue_jobs
said = {
    "files": [calve.__file__, glue_jobs.__file__, deployed_only.__file__, __file__],
    "arguments": sys.argv[1:],
    "settings": pathlib.Path("main.json").read_text(),
    "submit": os.environ["PYSPARK_SUBMIT_ARGS"],
}
pathlib.Path(os.environ["SAID"]).write_text(json.dumps(said))
print(json.dumps({"event": "job.ended", "job": "main", "states": {}}))
"""
PACKAGES = ("calve/__init__.py", "glue_jobs/__init__.py", "deployed_only.py")


@pytest.fixture
def deployed(stack: Stack, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Put a job's files into S3 and its definition into Glue; returns its name."""

    def put(script: str, **arguments: str) -> str:
        name = str(request.node.name).replace("_", "-")
        where = f"s3://{stack.bucket}/{name}"
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as made:
            for package in PACKAGES:
                made.writestr(package, "")
        files = {
            "script.py": script.encode(),
            f"{name}.zip": archive.getvalue(),
            "main.json": b"{}",
            "own.jar": b"PK",
        }
        s3 = aws.client("s3", stack.aws_endpoint)
        for file, body in files.items():
            s3.put_object(Bucket=stack.bucket, Key=f"{name}/{file}", Body=body)
        aws.client("glue", stack.aws_endpoint).create_job(
            Name=name,
            Role=rights.role(stack, rights.EVERYTHING, service="glue.amazonaws.com"),
            Command={"Name": "gluestreaming", "ScriptLocation": f"{where}/script.py"},
            DefaultArguments={
                "--extra-py-files": f"{where}/{name}.zip",
                "--extra-files": f"{where}/main.json",
                "--extra-jars": f"{where}/own.jar",
                "--conf": "spark.a=1 --conf spark.driver.extraJavaOptions=-Dx=1 -Dy=2",
                **{f"--{key}": value for key, value in arguments.items()},
            },
        )
        return name

    return put


def test_code_files_arguments_and_settings_are_those_of_the_definition(
    stack: Stack, deployed: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    name = deployed(SCRIPT, generation="g1")
    assert run_deployed(stack, name, Console(), drain=True) == 0
    said: dict[str, Any] = json.loads((tmp_path / "said").read_text())
    (archive,) = {Path(file).parents[1] for file in said["files"][:2]}
    assert archive == Layout(stack.root).job_code / f"{name}.zip"
    assert said["files"][2] == str(archive / "deployed_only.py")
    assert said["settings"] == "{}"
    given = dict(zip(said["arguments"][::2], said["arguments"][1::2], strict=True))
    assert given.pop("--JOB_RUN_ID")
    assert given == {"--JOB_NAME": name, "--generation": "g1", "--drain": "true"}
    assert "own.jar," in said["submit"]
    assert "spark.a=1" in said["submit"]
    assert "'spark.driver.extraJavaOptions=-Dx=1 -Dy=2'" in said["submit"]


def test_a_job_that_ends_without_a_word_is_shown_with_the_end_of_its_log(
    stack: Stack, deployed: Callable[..., str]
) -> None:
    with pytest.raises(Fatal, match=r"(?s)ended with code 1 without a reason.*ZeroDivisionError"):
        run_deployed(stack, deployed("1 / 0"), Console(), drain=True)


def test_a_job_that_nobody_deployed_is_no_traceback(stack: Stack) -> None:
    with pytest.raises(ConfigError, match='no job "nobodys" is deployed'):
        run_deployed(stack, "nobodys", Console(), drain=True)
