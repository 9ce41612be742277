"""`calve deploy` and `calve destroy` as in an AWS account: no embedded stack is known, only an endpoint and keys are set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.account import Account, stacks
from cli.embedded import aws
from cli.embedded.cdk import TOOLKIT, App
from cli.embedded.stack import Stack
from cli.progress import LineProgress
from tests.integration.support.engine import Engine

ROOT = Path(__file__).parents[3]
QUIET = LineProgress(lambda _: None)
CI = [ROOT / "examples" / "ci" / name for name in ("github-actions.yml", "gitlab-ci.yml")]


@dataclass(frozen=True, slots=True)
class Folder:
    """A user's folder with a calve.yaml that names everything."""

    path: Path
    stack: Stack
    name: str

    def calve(self, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        environment = kept | {
            "AWS_ENDPOINT_URL": self.stack.aws_endpoint,
            "AWS_ACCESS_KEY_ID": aws.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": aws.SECRET_KEY,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        command = [str(Path(sys.executable).with_name("calve")), *words]
        return subprocess.run(
            command, cwd=self.path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def document(self, *words: str) -> Any:
        done = self.calve(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def stacks(self) -> set[str]:
        names = stacks(Account(self.stack.region, self.stack.aws_endpoint))
        return {name for name in names if name.startswith(f"{self.name}-")}

    @property
    def bucket(self) -> str:
        return f"{self.name}-lake-{aws.ACCOUNT}-{self.stack.region}"

    def has_bucket(self) -> bool:
        buckets = aws.client("s3", self.stack.aws_endpoint).list_buckets()["Buckets"]
        return self.bucket in {each["Name"] for each in buckets}


@pytest.fixture
def folder(engine: Engine, tmp_path: Path) -> Folder:
    made = Folder(tmp_path, engine.stack, f"a{uuid.uuid4().hex[:8]}")
    settings = {
        "name": made.name,
        "kafka": {"bootstrap_servers": made.stack.bootstrap_servers},
        "registry": {"url": made.stack.registry_url},
        "lake": {"region": made.stack.region},
        "tables": {"trades": {"topic": engine.topic()}},
    }
    (tmp_path / "calve.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    return made


def commands_of_ci() -> set[str]:
    """The commands of calve in the examples for GitHub and GitLab."""
    lines: list[str] = []
    for file in CI:
        for job in (found := yaml.safe_load(file.read_text())).get("jobs", found).values():
            if isinstance(job, dict):
                lines += [step["run"] for step in job.get("steps", ()) if "run" in step]
                lines += job.get("script", ())
    return {line for line in lines if line.startswith("calve ")}


@pytest.mark.long
def test_an_account_is_deployed_by_consent_and_destroyed_by_consent(folder: Folder) -> None:
    assert commands_of_ci() == {"calve plan", "calve deploy --yes"}
    assert folder.calve("plan").returncode == 0

    unasked = folder.calve("deploy")
    assert unasked.returncode == 2
    assert f"account {aws.ACCOUNT}, {folder.stack.region}" in unasked.stdout
    assert f"+ {folder.name}-ingest" in unasked.stdout
    assert "calve deploy --yes" in unasked.stderr
    assert folder.stacks == set()

    done = folder.document("deploy", "--yes")
    assert done["deployed"]
    assert folder.stacks == set(done["outputs"])
    assert done["outputs"][f"{folder.name}-lake"]["Warehouse"] == f"s3://{folder.bucket}"
    assert not folder.document("deploy", "--yes")["deployed"]  # nothing differs

    text = (config := folder.path / "calve.yaml").read_text()
    config.write_text(f"{text}jobs: {{main: {{worker: G.2X}}}}\n")
    changed = folder.calve("deploy", "--yes")
    assert changed.returncode == 0, changed.stderr
    assert f"~ {folder.name}-ingest  ~  AWS::Glue::Job main/Job" in changed.stdout
    config.write_text(text.replace("topic: ", "topic: absent-"))
    refused = folder.calve("deploy", "--yes")
    assert refused.returncode == 1
    assert "nothing was deployed" in refused.stderr
    config.write_text(text)

    assert folder.calve("destroy").returncode == 2
    assert folder.calve("destroy", "--yes", "--delete-data", "another").returncode == 2
    assert folder.stacks
    assert folder.calve("destroy", "--yes").returncode == 0
    assert folder.stacks == set()
    assert folder.has_bucket()


def applied(module: Path, stack: Stack) -> Iterator[str]:
    """Do what Terraform does with the module: files first, then each stack after those that it depends on. Names of stacks."""
    region, account = stack.region, aws.ACCOUNT
    text = (
        (module / "main.tf.json").read_text().replace("${data.aws_caller_identity.calve.account_id}", account)
    )
    resource = json.loads(text.replace("${data.aws_region.calve.name}", region))["resource"]
    s3, cloudformation = (aws.client(each, stack.aws_endpoint) for each in ("s3", "cloudformation"))
    for each in resource["aws_s3_object"].values():
        file = module / each["source"].removeprefix("${path.module}/")
        s3.put_object(Bucket=each["bucket"], Key=each["key"], Body=file.read_bytes())
    done = {f"aws_s3_object.{id}" for id in resource["aws_s3_object"]}
    left = resource["aws_cloudformation_stack"]
    while left:
        id, made = next((id, each) for id, each in left.items() if done.issuperset(each["depends_on"]))
        cloudformation.create_stack(
            StackName=made["name"], TemplateURL=made["template_url"], Capabilities=made["capabilities"]
        )
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName=made["name"], WaiterConfig={"Delay": 1, "MaxAttempts": 120}
        )
        yield made["name"]
        done.add(f"aws_cloudformation_stack.{id}")
        left = {name: each for name, each in left.items() if name != id}


@pytest.mark.long
def test_what_synth_writes_is_deployed_without_the_cdk_and_destroyed_with_its_data(folder: Folder) -> None:
    made = aws.client("cloudformation", folder.stack.aws_endpoint).describe_stacks()["Stacks"]
    if TOOLKIT not in {each["StackName"] for each in made}:
        App(folder.stack, folder.path).bootstrap(QUIET, aws.ACCOUNT, folder.stack.region)
    written = folder.document("synth", "--to", "module")
    assert folder.calve("synth", "--to", "module").returncode == 2  # it is not empty
    names = list(applied(folder.path / "module", folder.stack))
    assert set(names) == set(written["stacks"]) == folder.stacks
    assert folder.has_bucket()
    glue = aws.client("glue", folder.stack.aws_endpoint)
    assert glue.get_job(JobName=f"{folder.name}-main")["Job"]["DefaultArguments"]["--generation"]
    assert folder.calve("destroy", "--yes", "--delete-data", folder.name).returncode == 0
    assert folder.stacks == set()
    assert not folder.has_bucket()
