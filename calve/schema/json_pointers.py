"""The target of a `$ref` of a JSON Schema: in its document, or in a schema that the registry lists as a reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urljoin

from calve.schema.columns import Json
from calve.schema.evolution import SchemaProblem

SIBLINGS_IGNORED = ("draft-03", "draft-04", "draft-06", "draft-07")


class Documents:
    """A schema and its references, by name, `$id` and anchor. Nothing is fetched.

    Raises `SchemaProblem` if a text is nested too deeply, and `ValueError` if one is not JSON.
    """

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        try:
            documents = {name: json.loads(each) for name, each in {**references, "": text}.items()}
        except RecursionError:
            raise SchemaProblem("", "it is nested too deeply") from None
        self.root = documents[""]
        self._known: dict[str, Json] = dict(documents)
        objects = [each for name, document in documents.items() for each in _objects(name, document)]
        for base, node in objects:
            self._known.setdefault(base, node)
            own = node.get("$id")
            for anchor in (node.get("$anchor"), own[1:] if isinstance(own, str) and own[:1] == "#" else None):
                if isinstance(anchor, str):
                    self._known.setdefault(f"{base}#{anchor}", node)
        for base, node in objects:
            reference = node.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                node["$ref"] = base + reference.rstrip("#")
            elif isinstance(reference, str) and reference.partition("#")[0] not in self._known:
                node["$ref"] = _joined(base, reference)

    @property
    def siblings_ignored(self) -> bool:
        """Whether the schema's draft ignores properties beside a `$ref`."""
        draft = self.root.get("$schema") if isinstance(self.root, dict) else None
        return isinstance(draft, str) and any(each in draft for each in SIBLINGS_IGNORED)

    def resolve(self, reference: str, path: str) -> Json:
        """The schema of a `$ref`. Raises `SchemaProblem` if there is none."""
        if reference in self._known:
            return self._known[reference]
        document, _, pointer = reference.partition("#")
        found = self._known.get(document)
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = found.get(key) if isinstance(found, dict) else None
        if found is None or (pointer and not pointer.startswith("/")):
            raise SchemaProblem(path, f'"{reference}" is neither in the schema nor among its references')
        return found


def _joined(base: str, reference: str) -> str:
    """A URI relative to another. An invalid URI is not changed, so it resolves to nothing."""
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _objects(base: str, document: Json) -> Iterator[tuple[str, dict[str, Json]]]:
    """Every object of a document, with its base URI."""
    rest: list[tuple[str, Json]] = [(base, document)]
    while rest:
        around, node = rest.pop()
        if isinstance(node, dict):
            own = node.get("$id")
            if isinstance(own, str) and not own.startswith("#"):
                around = _joined(around, own).partition("#")[0]
            yield around, node
            rest += [(around, each) for each in node.values()]
        elif isinstance(node, list):
            rest += [(around, each) for each in node]
