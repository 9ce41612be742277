"""What the principals of templates may do, as IAM judges it, but on the safe side.

An Allow holds whatever its conditions, a Deny only without any. What a template does not know, such as the ARN of a table that
CloudFormation names, matches everything in an Allow and nothing in a Deny. All deployments are taken to be in one account.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.synth.test_lake import listed

Templates = Mapping[str, Mapping[str, Any]]
PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": "eu-central-1",
    "AWS::AccountId": "111122223333",
    "AWS::URLSuffix": "amazonaws.com",
}
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class Statement:
    """Actions and resources are patterns. inverted: whatever is not one of them. bare: it has no conditions."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    inverted: tuple[bool, bool]
    conditions: Any

    def covers(self, action: str, resource: str | None) -> bool:
        """resource: None: any at all."""
        unknown_matches = (self.effect == "Allow") is not self.inverted[1]
        acts = any(_like(each.lower(), action.lower()) for each in self.actions) is not self.inverted[0]
        if resource is None:
            return acts
        return (
            acts
            and any(_like(each, resource, unknown_matches) for each in self.resources) is not self.inverted[1]
        )


@dataclass(frozen=True)
class Principal:
    """A role with all its policies, or a managed policy. name: `stack/LogicalId`, without CloudFormation's hash."""

    stack: str
    name: str
    arn: str
    statements: tuple[Statement, ...]
    trust: Any = None

    def may(self, action: str, resource: str | None = None) -> bool:
        denied = any(
            each.covers(action, resource)
            for each in self.statements
            if each.effect == "Deny" and not each.conditions and resource is not None
        )
        return not denied and any(
            each.covers(action, resource) for each in self.statements if each.effect == "Allow"
        )


def principals(templates: Templates) -> Iterator[Principal]:
    for stack, template in templates.items():
        policies = [each for each in template["Resources"].items() if each[1]["Type"] == "AWS::IAM::Policy"]
        for id_, resource in template["Resources"].items():
            kind, properties = resource["Type"], resource.get("Properties", {})
            if kind in ("AWS::IAM::User", "AWS::IAM::Group"):
                raise AssertionError(f"{stack}/{id_}: nothing is known here of users and groups")
            if kind == "AWS::IAM::ManagedPolicy":
                documents = [properties["PolicyDocument"]]
            elif kind == "AWS::IAM::Role":
                documents = [each["PolicyDocument"] for each in properties.get("Policies", ())]
                documents += [
                    each["Properties"]["PolicyDocument"]
                    for _, each in policies
                    if {"Ref": id_} in each["Properties"]["Roles"]
                ]
                if properties.get("ManagedPolicyArns"):
                    raise AssertionError(f"{stack}/{id_}: what is in a policy of AWS is not known here")
            else:
                continue
            found = (
                _statement(each, stack, templates) for document in documents for each in document["Statement"]
            )
            yield Principal(
                stack,
                f"{stack.rpartition('-')[2]}/{re.sub('[0-9A-F]{8}$', '', id_)}",
                _made(stack, id_, resource, "Arn"),
                tuple(found),
                properties.get("AssumeRolePolicyDocument"),
            )


def plain(value: Any, stack: str, templates: Templates) -> str:
    """A template's value as text; what it does not know is `UNKNOWN`."""
    resources = templates[stack]["Resources"]
    match value:
        case {"Ref": name} if name in PSEUDO:
            return PSEUDO[name]
        case {"Ref": name} if name in resources:
            return _made(stack, name, resources[name], "Ref")
        case {"Fn::GetAtt": [name, attribute]}:
            return _made(stack, name, resources[name], attribute)
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(plain(each, stack, templates) for each in parts)
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{(.*?)}", lambda found: PSEUDO.get(found[1], UNKNOWN), text)
        case {"Fn::ImportValue": name}:
            return _exported(name, templates)
        case str():
            return value
    return UNKNOWN


def _exported(name: Any, templates: Templates) -> str:
    for stack, template in templates.items():
        for output in template.get("Outputs", {}).values():
            if output.get("Export", {}).get("Name") == name:
                return plain(output["Value"], stack, templates)
    return UNKNOWN


def _made(stack: str, id_: str, resource: Mapping[str, Any], attribute: str) -> str:
    """What CloudFormation calls a resource: by its name, or by stack and id."""
    properties = resource.get("Properties", {})
    match resource["Type"], attribute:
        case ("AWS::IAM::Role" | "AWS::IAM::ManagedPolicy", "Arn"):
            return f"arn:aws:iam::{PSEUDO['AWS::AccountId']}:role/{stack}-{id_}"
        case ("AWS::Lambda::Function", "Arn"):
            name = properties.get("FunctionName", f"{stack}-{id_}-X")
            return f"arn:aws:lambda:{PSEUDO['AWS::Region']}:{PSEUDO['AWS::AccountId']}:function:{name}"
    return UNKNOWN


def _statement(raw: Mapping[str, Any], stack: str, templates: Templates) -> Statement:
    known = {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}
    if not set(raw) <= known:
        raise AssertionError(f"{stack}: nothing is known here of {set(raw) - known}")
    actions, resources = raw.get("Action", raw.get("NotAction")), raw.get("Resource", raw.get("NotResource"))
    return Statement(
        raw["Effect"],
        tuple(listed(actions)),
        tuple(plain(each, stack, templates) for each in listed(resources)),
        ("NotAction" in raw, "NotResource" in raw),
        raw.get("Condition"),
    )


def _like(pattern: str, text: str, unknown_matches: bool = True) -> bool:
    if UNKNOWN in pattern and not unknown_matches:
        return False
    marks = {"*": ".*", "?": ".", UNKNOWN: ".*"}
    parts = re.split(r"([*?]|<unknown>)", pattern)
    return (
        re.fullmatch("".join(marks.get(each, re.escape(each)) for each in parts), text, re.DOTALL) is not None
    )
