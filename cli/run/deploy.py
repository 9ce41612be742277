"""`calve deploy`, `calve destroy` and `calve synth`: calve.yaml as AWS stacks, by the CDK CLI.

They go to an account, to the embedded stack, or into a folder for Terraform.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from calve.errors import CalveError, ConfigError
from calve.settings import load_deployment
from cli.account import Account, stacks
from cli.config import Common, found, load_target
from cli.console import Branch, Console
from cli.embedded.cdk import TOOLKIT, App, Outputs
from cli.project.plan.command import Planned

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for CI.")]
DeleteOption = Annotated[
    str | None,
    typer.Option(
        "--delete-data", metavar="NAME", help="Delete the tables, too. NAME is that of the deployment."
    ),
]
BETWEEN_STACKS = ("ExportsOutput", "PublishOutput")
SAME = "Number of stacks with differences: 0"

_STACK = re.compile(r"Stack (?P<name>\S+) ")
_RESOURCE = re.compile(r"\[(?P<mark>[+~-])\] (?P<what>(?:AWS|Custom)::\S+ .+)")
_RIGHT = re.compile(r"│ (?P<mark>[+-]| ) │(?P<cells>.*)│$")
_LOGICAL = re.compile(r" [A-Za-z0-9]+(?P<rest>(?: .*)?)$")
RESOURCE, EFFECT, ACTION, PRINCIPAL = range(4)


def deploy(*, given: Common, yes: YesOption = False) -> None:
    """Show what a deploy would change and cost, ask, and do it; wait until the jobs have opened their tables.

    It deploys into the account of --profile, or into the embedded stack if calve.yaml leaves Kafka or the registry to it.
    There it asks nothing. In an account it also shows each AWS resource and each right that changes, and applies the very
    templates that it has compared. A first deploy also makes the stack that the AWS CDK needs in each account and region.

    Exits with 0 when it is deployed or nothing was to do, with 1 when it cannot work, with 2 when calve.yaml is invalid.

    Examples:
      calve deploy
      calve deploy --env prod --yes
    """
    console = given.console
    planned = Planned.of(given)
    planned.show(console)
    if planned.problems:
        console.document(planned.document() | {"deployed": False})
        raise CalveError(
            "nothing was deployed: this cannot work", fix="mend the problems above, then deploy again"
        )
    app = App(planned.embedded, found(given.config), given.env, region=planned.account.region)
    if planned.embedded:
        outputs: Outputs | None = app.deploy(console.progress())
    else:
        outputs = _into_account(app, planned, console, yes=yes)
    if outputs is None:
        console.say("There is nothing to do.")
    else:
        name = planned.deployment.name
        runs = [f"calve run-job {name}-{each.settings.job} --drain" for each in planned.deployment.jobs]
        facts = {
            "stacks": "  ".join(sorted(outputs)),
            "tables": outputs.get(f"{name}-lake", {}).get("Warehouse", ""),
            "all outputs": "calve deploy -o json",
            "next": "   ".join(runs) if planned.embedded else "calve status",
        }
        console.panel("deployed", facts)
    shown = {
        stack: {key: value for key, value in values.items() if not key.startswith(BETWEEN_STACKS)}
        for stack, values in (outputs or {}).items()
    }
    console.document(planned.document() | {"deployed": outputs is not None, "outputs": shown})


def _into_account(app: App, planned: Planned, console: Console, *, yes: bool) -> Outputs | None:
    """Deploy after a person's consent. None: nothing differs."""
    if not (bootstrapped := TOOLKIT in stacks(planned.account)):
        console.say(
            f"The AWS CDK needs the stack {TOOLKIT} in {planned.where}. It is missing, so it is made first."
        )
    said = app.compare(console.progress(), change_sets=bootstrapped)
    below = [each.branch() for each in stack_changes(said)]
    console.tree("aws", Branch("AWS", note=f"all of it: {app.log}", below=below))
    if any(SAME in line for line in said):
        return None
    console.consent(f"Deploy this into {planned.where}?", yes=yes, fix="calve deploy --yes")
    if not bootstrapped:
        app.bootstrap(console.progress(), planned.number, planned.account.region)
    return app.deploy(console.progress(), compared=True)


def destroy(*, given: Common, yes: YesOption = False, delete_data: DeleteOption = None) -> None:
    """End the jobs and remove the stacks; the tables, their bucket and their key stay.

    A later `calve deploy` finds the tables, and goes on at their positions. With --delete-data the tables go, too.

    Examples:
      calve destroy
      calve destroy --delete-data trading
    """
    console = given.console
    deployment, embedded = load_target(given.config, given.env)
    account, name = Account.of(embedded, deployment.region), deployment.name
    where = "the embedded stack" if embedded else f"account {account.id()}, {account.region}"
    # Another deployment may have this one's name and a hyphen before its own.
    there = [each for each in stacks(account) if each.rpartition("-")[0] == name]
    if not there:
        console.say(f"{name} is not deployed in {where}.")
        return
    if delete_data not in (None, name):
        raise ConfigError(
            f'the deployment is "{name}", not "{delete_data}": nothing was removed',
            fix=f"--delete-data {name}",
        )
    console.panel(
        "destroy",
        {"stacks": "  ".join(there), "in": where, "data": "goes, all of it" if delete_data else "stays"},
    )
    if not embedded:
        question = f"Remove them and DELETE ALL TABLES of {name}?" if delete_data else "Remove them?"
        console.consent(question, yes=yes, fix="calve destroy --yes")
    app = App(embedded, found(given.config), given.env, region=account.region)
    if delete_data:
        app = replace(app, context={"delete_data": f"yes-delete-{name}"})
        app.deploy(console.progress())  # the stacks must know it before they go
    app.destroy(console.progress())
    console.event("destroyed", data="deleted" if delete_data else "kept; calve deploy goes on with it")


@dataclass(slots=True)
class StackChanges:
    """One stack. resources: mark and text of each; rights: mark and cells of each statement, each cell with its lines."""

    name: str
    resources: list[tuple[str, str]] = field(default_factory=list)
    rights: list[tuple[str, list[list[str]]]] = field(default_factory=list)

    @property
    def is_new(self) -> bool:
        return bool(self.resources) and all(mark == "+" for mark, _ in self.resources)

    def branch(self) -> Branch:
        """A new stack by its numbers, another one by each change."""
        if self.is_new:
            return Branch(self.name, "+", f"{len(self.resources)} resources, {len(self.rights)} rights")
        below = [Branch("", mark, text) for mark, text in self.resources]
        below += [Branch("", mark, f"right: {_sentence(cells)}") for mark, cells in self.rights]
        return Branch(self.name, "~", f"{len(self.resources)} resources, {len(self.rights)} rights", below)


def stack_changes(lines: Iterable[str]) -> list[StackChanges]:
    """The stacks with a difference, in the order of the lines."""
    found: list[StackChanges] = []
    for line in lines:
        if stack := _STACK.match(line):
            found.append(StackChanges(stack["name"]))
        elif not found:
            continue
        elif resource := _RESOURCE.match(line):
            found[-1].resources.append((resource["mark"], _LOGICAL.sub(r"\g<rest>", resource["what"])))
        elif right := _RIGHT.match(line):
            cells = [each.strip() for each in right["cells"].split("│")]
            if right["mark"] != " ":
                found[-1].rights.append((right["mark"], [[each] for each in cells]))
            elif found[-1].rights and len(cells) == len(found[-1].rights[-1][1]):
                for whole, more in zip(found[-1].rights[-1][1], cells, strict=True):
                    whole.append(more)
    return [each for each in found if each.resources or each.rights]


def _sentence(cells: list[list[str]]) -> str:
    """`Allow s3:GetObject, s3:PutObject on ... for ...`; a condition is not shown."""
    if len(cells) <= PRINCIPAL:  # the table of managed policies has other columns
        return ", ".join(line for cell in cells for line in cell if line)
    said = [", ".join(filter(None, cell)) for cell in cells]
    return f"{said[EFFECT]} {said[ACTION]} on {said[RESOURCE]} for {said[PRINCIPAL]}"


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
