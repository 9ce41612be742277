"""All templates of all deployments, synthesized once."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from stacks.app import build
from stacks.base.bundling import Runtime
from tests.synth.deployments import IMPORTED, MADE, MSK, REMOVABLE, REST_HOME, S3_TABLES_HOME, SHOP


@dataclass(frozen=True)
class Synthesized:
    """The templates of the stacks with resources, by stack, and where all are written."""

    folder: Path
    templates: dict[str, dict[str, Any]]

    def find(self, stack: str, kind: str) -> dict[str, dict[str, Any]]:
        """Properties of a stack's resources of one type, by logical id."""
        resources = self.templates[stack]["Resources"]
        return {id: each.get("Properties", {}) for id, each in resources.items() if each["Type"] == kind}

    def filters(self, deployment: str) -> list[dict[str, Any]]:
        """The metric filters of a deployment's jobs."""
        kind = "AWS::Logs::MetricFilter"
        return [
            each
            for part in ("ingest", "maintenance")
            for each in self.find(f"{deployment}-{part}", kind).values()
        ]

    def one(self, stack: str, kind: str) -> dict[str, Any]:
        (found,) = self.find(stack, kind).values()
        return found


def synthesize(folder: Path) -> Synthesized:
    # Functions are not bundled here: what is in them is the matter of test_bundling.
    app = App(outdir=str(folder), context={"aws:cdk:bundling-stacks": []})
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    for deployment in (MADE, MSK, IMPORTED, SHOP, REST_HOME, S3_TABLES_HOME):
        build(app, deployment, runtime=Runtime())
    build(app, REMOVABLE, runtime=Runtime(), delete_data=True)
    app.synth()
    templates = {
        file.name.split(".")[0]: json.loads(file.read_text()) for file in folder.glob("*.template.json")
    }
    return Synthesized(folder, {name: each for name, each in templates.items() if each})


@pytest.fixture(scope="session", autouse=True)
def small_jars(tmp_path_factory):
    """Iceberg's jars have 112 MB, which each of many synths would copy."""
    folder = tmp_path_factory.mktemp("jars")

    def jars(artifacts):
        for each in artifacts:
            (folder / each).write_text(each)
        return [folder / each for each in artifacts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stacks.jobs.job_code.job_jars", jars)
        yield


@pytest.fixture(scope="session")
def synthesized(tmp_path_factory):
    return synthesize(tmp_path_factory.mktemp("cdk"))


def text(value: Any) -> str:
    """A template's value as text; references stand as `<Ref>`."""
    match value:
        case {"Ref": name}:
            return f"<{name.removeprefix('AWS::')}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(map(text, parts))
        case {"Fn::Sub": template}:
            return str(template).replace("${AWS::", "<").replace("}", ">")
        case {"Fn::ImportValue": name}:
            return f"<import {name}>"
        case {"Fn::GetStackOutput": {"StackName": stack, "OutputName": name}}:
            return f"<output {name} of {stack}>"
        case _:
            return str(value)
