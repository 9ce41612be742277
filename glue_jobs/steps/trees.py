"""Trees of Spark's Catalyst, as they are in JSON: one question to the JVM for a tree of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Node = dict[str, Any]


def nodes(tree: Any) -> list[Node]:
    """The nodes of a Java TreeNode, each before its children, of which it has `num-children`."""
    found: list[Node] = json.loads(tree.toJSON())
    return found


def kind(node: Node) -> str:
    """The simple name of the node's class."""
    return str(node["class"]).rsplit(".", 1)[-1]


def everywhere(part: Any) -> Iterator[Node]:
    """All nodes that there are, also expressions of plans, plans of expressions, and what is no child."""
    if isinstance(part, dict):
        if "class" in part:
            yield part
        for value in part.values():
            yield from everywhere(value)
    elif isinstance(part, list):
        for value in part:
            yield from everywhere(value)


def children(flat: list[Node], at: int = 0) -> list[int]:
    """The places of the children of the node at a place."""
    places, place = [], at + 1
    for _ in range(flat[at]["num-children"]):
        places.append(place)
        place = _after(flat, place)
    return places


def _after(flat: list[Node], at: int) -> int:
    """The place after a node and all below it."""
    open_nodes = 1
    while open_nodes:
        open_nodes += flat[at]["num-children"] - 1
        at += 1
    return at
