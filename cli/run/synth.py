"""`calve synth`: the stacks as CloudFormation templates with their files, for Terraform or another tool."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from calve.errors import ConfigError
from calve.settings import load_deployment
from cli.config import Common, found
from cli.embedded.cdk import App

FolderOption = Annotated[Path, typer.Option("--to", help="A new or an empty folder for it.")]
ACCOUNT, REGION = "${AWS::AccountId}", "${AWS::Region}"
HERE = {ACCOUNT: "${data.aws_caller_identity.calve.account_id}", REGION: "${data.aws_region.calve.name}"}
CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]
LONGEST = "90m"
"""A hand-over may take 15 minutes, and the wait for the tables 15 more, of each job in turn."""


def synth(*, given: Common, to: FolderOption = Path("calve-stacks")) -> None:
    """Write the stacks for Terraform: a module of `aws_s3_object` and `aws_cloudformation_stack`.

    It holds the templates, the code of jobs and functions, and `main.tf.json`. It is the same for every account and region.
    The account needs the stack of `cdk bootstrap`, whose bucket takes the files. Nothing is asked of AWS.

    Examples:
      calve synth
      calve synth --env prod --to infrastructure/calve
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"{to} is not empty", fix="remove it, or name another folder: --to")
    console = given.console
    load_deployment(found(given.config), given.env)  # its errors are better than those of the CLI
    app = App(None, found(given.config), given.env)
    made = app.synthesize(console.progress())
    module = _module(made, to)
    (to / "main.tf.json").write_text(json.dumps(module, indent=2) + "\n")
    names = list(module["resource"]["aws_cloudformation_stack"])
    console.panel(
        "written",
        {"stacks": "  ".join(names), "module": to, "next": f'module "calve" {{ source = "./{to}" }}'},
    )
    console.document({"folder": str(to), "stacks": names})


def _module(made: Path, to: Path) -> dict[str, Any]:
    """Copy the files of an assembly; the module that deploys them. A stack without resources is left out."""
    artifacts = json.loads((made / "manifest.json").read_text())["artifacts"]
    stacks = {
        name: each
        for name, each in artifacts.items()
        if each["type"] == "aws:cloudformation:stack"
        and json.loads((made / each["properties"]["templateFile"]).read_text()).get("Resources")
    }
    objects: dict[str, dict[str, str]] = {}
    resources: dict[str, dict[str, Any]] = {}
    for name, each in stacks.items():
        needed = [f"aws_cloudformation_stack.{other}" for other in each["dependencies"] if other in stacks]
        for file in json.loads((made / f"{name}.assets.json").read_text())["files"].values():
            [place] = file["destinations"].values()
            key = place["objectKey"]
            id = f"file_{Path(key).stem}"
            if id not in objects:
                source = _copied(
                    made / file["source"]["path"], file["source"]["packaging"], to / "files" / Path(key).name
                )
                objects[id] = {
                    "bucket": _here(place["bucketName"]),
                    "key": key,
                    "source": f"${{path.module}}/{source.relative_to(to)}",
                }
            needed.append(f"aws_s3_object.{id}")
        template = _here(each["properties"]["stackTemplateAssetObjectUrl"]).removeprefix("s3://")
        resources[name] = {
            "name": name,
            "template_url": f"https://s3.{HERE[REGION]}.amazonaws.com/{template}",
            "capabilities": CAPABILITIES,
            "depends_on": needed,
            "timeouts": dict.fromkeys(("create", "update", "delete"), LONGEST),
        }
    return {
        "terraform": {"required_providers": {"aws": {"source": "hashicorp/aws"}}},
        "data": {"aws_caller_identity": {"calve": {}}, "aws_region": {"calve": {}}},
        "resource": {"aws_s3_object": objects, "aws_cloudformation_stack": resources},
    }


def _copied(source: Path, packaging: str, target: Path) -> Path:
    """The file, or the folder as an archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if packaging == "zip":
        shutil.make_archive(str(target.with_suffix("")), "zip", source)
    else:
        shutil.copyfile(source, target)
    return target


def _here(text: str) -> str:
    for name, expression in HERE.items():
        text = text.replace(name, expression)
    return text
