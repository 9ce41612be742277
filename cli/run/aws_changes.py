"""The changes that CloudFormation would make, out of the lines of `cdk diff`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from cli.console import Branch

_STACK = re.compile(r"Stack (?P<name>\S+) ")
_RESOURCE = re.compile(r"\[(?P<mark>[+~-])\] (?P<what>(?:AWS|Custom)::\S+ .+)")
_RIGHT = re.compile(r"│ (?P<mark>[+-]| ) │(?P<cells>.*)│$")
_LOGICAL = re.compile(r" [A-Za-z0-9]+(?P<rest>(?: .*)?)$")
RESOURCE, EFFECT, ACTION, PRINCIPAL = range(4)


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
