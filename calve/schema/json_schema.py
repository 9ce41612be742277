"""JSON Schemas (draft 7 and 2020-12) as table columns.

Sources: the two specifications, Iceberg's types, and Confluent's public converters. calve's own choices: every column is
optional; `format` is used; a value that no other column type holds is kept as JSON text.

A shape is an Iceberg type in JSON form whose leaves may also be one of `WIRE`: how the value is written in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from urllib.parse import unquote, urljoin

from calve.schema.columns import (
    TAGS,
    Json,
    field,
    innermost,
    join,
    joined,
    list_of,
    listed,
    map_of,
    struct,
    with_tags,
    with_unit,
)
from calve.schema.evolution import SchemaProblem, column_name, struct_of, top_of
from calve.schema.json_scalars import CONNECT_TYPES, Named, kind_of, scalar

WIRE = {"json": "string", "days": "date", "millis": "timestamptz", "instant": "timestamptz"} | {
    "local_millis": "timestamp",
    "local_micros": "timestamp",
    "database_float": "float",
    "database_double": "double",
}
"""Leaves of a shape that are not Iceberg types -> their column type."""
MAX_DEPTH = 32
MAX_PARTS = 10_000
TEXTS = {"string", "date", "timestamptz"}
ALIASES = "x-aliases"
"""Annotation of a property: its earlier names."""
CONDITIONAL = ("if", "then", "else", "not")
SIBLINGS_IGNORED = ("draft-03", "draft-04", "draft-06", "draft-07")
CONDITIONAL_BY_NAME = ("dependentSchemas", "dependencies")


def shape(
    text: str, references: Mapping[str, str], named: Named = CONNECT_TYPES, column: str | None = None
) -> Json:
    """The shape of a registered schema's values. `references`: the schemas that it refers to, by the name it uses.

    column: the whole value, an object with properties or one plain value, is this one field.
    Raises `SchemaProblem` if it is neither, or a part of it has no column type, and `ValueError` if the text is not JSON.
    """
    documents = Documents(text, references)
    found = _Shapes(documents, named).of(documents.root, column or "", ())
    has_properties = isinstance(found, dict) and found["type"] == "struct"
    if column is None and not has_properties:
        why = "a table needs an object with properties at the top, so that they can be columns"
        raise SchemaProblem("", why)
    if column is None:
        return top_of(found)
    if not has_properties and (found == "json" or isinstance(found, dict)):
        raise SchemaProblem(column, "it must be an object with properties, or one plain value")
    return struct(field(column, found))


def columns_of(shape: Json) -> Json:
    if isinstance(shape, str):
        return WIRE.get(shape, shape)
    match shape["type"]:
        case "struct":
            return shape | {"fields": [each | {"type": columns_of(each["type"])} for each in shape["fields"]]}
        case "list":
            return shape | {"element": columns_of(shape["element"])}
        case _:
            return shape | {"value": columns_of(shape["value"])}


class _Shapes:
    """Walks one schema. `inside`: the nodes around a node, as written; a node in it contains itself."""

    def __init__(self, documents: Documents, named: Named) -> None:
        self._documents = documents
        self._named = named
        self._parts = 0

    def of(self, node: Json, path: str, inside: tuple[Json, ...]) -> Json:
        if any(each is node for each in inside):
            raise SchemaProblem(path, "it contains itself; a recursive type has no table form")
        if len(inside) >= MAX_DEPTH:
            raise SchemaProblem(path, f"it is nested deeper than {MAX_DEPTH}")
        inside = (*inside, node)
        resolved = self._resolved(node, path)
        listed = _listed(resolved, "oneOf", path) + _listed(resolved, "anyOf", path)
        branches = [self._resolved(each, path) for each in listed]
        kind = kind_of(resolved)
        if kind == "object" and "properties" in resolved:
            branches = []  # they only refine the node itself
        others = [each for each in branches if not _is_null(each)]
        if len(others) == 1:
            rest = {key: value for key, value in resolved.items() if key not in ("oneOf", "anyOf")}
            return self.of(merged([rest, others[0]], path), path, inside)
        if kind is None and others:
            return self._union(others, path, inside)
        match kind:
            case "object":
                return self._object(resolved, path, inside)
            case "array" if "prefixItems" not in resolved and isinstance(resolved.get("items"), dict | bool):
                return list_of(self.of(resolved["items"], f"{path}[]", inside))
            case "array" | None:
                return "json"
        return scalar(kind, resolved, path, self._named)

    def _resolved(self, node: Json, path: str, seen: tuple[str, ...] = ()) -> dict[str, Json]:
        """The node with its `$ref` and `allOf` resolved."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise SchemaProblem(path, f"the schema has more than {MAX_PARTS} parts")
        if node is True:
            return {}
        if not isinstance(node, dict) or not _are_texts(node.get("type", [])):
            why = "no value is allowed here" if node is False else "this is no JSON Schema"
            raise SchemaProblem(path, why)
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise SchemaProblem(path, "a dynamic reference has no table form")
        parts = []
        rest = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in seen:
                raise SchemaProblem(path, f'"{reference}" refers to itself')
            target = self._documents.resolve(reference, path)
            parts.append(self._resolved(target, path, (*seen, reference)))
            if self._documents.siblings_ignored:
                return parts[0]
        parts += [self._resolved(each, path, seen) for each in _listed(node, "allOf", path)]
        return merged([rest, *parts], path)

    def _union(self, branches: list[dict[str, Json]], path: str, inside: tuple[Json, ...]) -> Json:
        """Alternatives that agree on a value's type; several text formats are text, anything else is JSON text.

        JSON does not say which alternative wrote a value, and it may be undecidable.
        """
        first, *others = [self.of(each, path, inside) for each in branches]
        alike = reduce(lambda found, each: found and joined(found, each), others, first)
        if alike is not None:
            return alike
        are_texts = all(isinstance(each, str) and each in TEXTS for each in (first, *others))
        return "string" if are_texts else "json"

    def _object(self, node: dict[str, Json], path: str, inside: tuple[Json, ...]) -> Json:
        properties, more = node.get("properties", {}), node.get("additionalProperties", True)
        if not isinstance(properties, dict) or not isinstance(more, dict | bool):
            raise SchemaProblem(path, "this is no JSON Schema")
        if node.get("patternProperties"):
            return _text(path, "properties by a pattern have no column type")
        for name in self._conditional(node, path, ()):
            if name not in properties:
                return _text(path, f"{name} is declared only under a condition, and so no column")
        if properties:
            if isinstance(more, dict) and more:
                return _text(path, "further properties with a type have no column beside the named ones")
            return self._struct(properties, path, inside)
        if more is False:
            raise SchemaProblem(path, "an object without properties has no columns")
        if (isinstance(more, dict) and more) or node.get("connect.type") == "map":
            return map_of(self.of(more, f"{path}{{}}", inside))
        return "json"

    def _struct(self, properties: dict[str, Json], path: str, inside: tuple[Json, ...]) -> Json:
        fields = []
        for name, node in sorted(properties.items(), key=_order):
            where = join(path, name)
            said = node.get("description") if isinstance(node, dict) else None
            doc = with_unit(said if isinstance(said, str) else None, self._named.unit(node))
            kind = self.of(node, where, inside)
            made = field(column_name(name, where), kind, doc=doc)
            aliases = node.get(ALIASES, []) if isinstance(node, dict) else []
            if isinstance(aliases, str) or not _are_texts(aliases):
                raise SchemaProblem(where, f"{ALIASES} must be a list of names")
            made |= {"aliases": aliases} if aliases else {}
            fields.append(with_tags(made, tags_in(node, self._documents, kind)))
        return struct_of(fields, path)

    def _conditional(self, node: Json, path: str, seen: tuple[str, ...]) -> Iterator[str]:
        """Names of properties that a node declares outside its own `properties`: they apply to the same value, but not always."""
        found = [node[key] for key in CONDITIONAL if key in node]
        for key in ("allOf", "anyOf", "oneOf"):
            found += _listed(node, key, path)
        for key in CONDITIONAL_BY_NAME:
            found += node[key].values() if isinstance(node.get(key), dict) else ()
        for each in (each for each in found if isinstance(each, dict)):
            reference = each.get("$ref")
            if isinstance(reference, str) and reference not in seen:
                target = self._documents.resolve(reference, path)
                yield from self._conditional({"allOf": [target]}, path, (*seen, reference))
            properties = each.get("properties", {})
            yield from properties if isinstance(properties, dict) else ()
            yield from self._conditional(each, path, seen)


def _text(path: str, why: str) -> Json:
    """A value that no column type holds is kept as JSON text; not at the top level, which must be columns."""
    if path:
        return "json"
    raise SchemaProblem(path, why)


def _are_texts(given: Json) -> bool:
    """Whether it is a text or a list of texts."""
    listed = given if isinstance(given, list) else [given]
    return all(isinstance(each, str) for each in listed)


def _listed(node: dict[str, Json], key: str, path: str) -> list[Json]:
    found = node.get(key, [])
    if not isinstance(found, list):
        raise SchemaProblem(path, "this is no JSON Schema")
    return found


def _order(named: tuple[str, Json]) -> float:
    index = named[1].get("connect.index") if isinstance(named[1], dict) else None
    return index if isinstance(index, int) else float("inf")


def _is_null(node: dict[str, Json]) -> bool:
    return (
        node.get("type") in ("null", ["null"]) or node.get("enum") == [None] or node.get("const", 0) is None
    )


MEANT_FOR_PEOPLE = {
    "title", "description", "default", "examples", "$comment", "$id", "$schema", "$defs", "definitions"
}  # fmt: skip


def merged(nodes: Sequence[dict[str, Json]], path: str) -> dict[str, Json]:
    """One schema with the constraints of all. Contradictions are checked only where they matter.

    Raises `SchemaProblem` if they require types that no value has at once.
    """
    first, *others = [each for each in nodes if each] or [{}]
    found = dict(first)
    for each in others:
        for key, value in each.items():
            found[key] = _both(key, found[key], value, path) if key in found else value
    return found


def _both(key: str, one: Json, other: Json, path: str) -> Json:
    if one == other or key in MEANT_FOR_PEOPLE:
        return one
    match key:
        case "type":
            return _type(one, other, path)
        case "properties" if isinstance(one, dict) and isinstance(other, dict):
            shared = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}
            return one | other | shared
        case "items" | "additionalProperties" if isinstance(one, dict) and isinstance(other, dict):
            return {"allOf": [one, other]}
        case "additionalProperties":
            return one if isinstance(one, dict) and one else other
        case "enum" if isinstance(one, list) and isinstance(other, list):
            return [each for each in one if each in other]
        case "oneOf" | "anyOf" | "connect.type" | "connect.parameters":
            raise SchemaProblem(path, f"its parts name {key} with different values")
    return one


def _type(one: Json, other: Json, path: str) -> Json:
    """The types that both allow; an integer is a number."""
    left, right = (set(each if isinstance(each, list) else [each]) for each in (one, other))
    pairs = {(a, b) for a in left for b in right}
    whole = {"integer"} if pairs & {("integer", "number"), ("number", "integer")} else set()
    both = sorted((left & right) | whole)
    if not both:
        raise SchemaProblem(path, f"no value has the types {one} and {other} at once")
    return both[0] if len(both) == 1 else both


SAME_COLUMN = ("allOf", "anyOf", "oneOf", "items", "additionalProperties")


def tags_in(node: Json, documents: Documents, kind: Json) -> list[str]:
    """The tags of a property; `kind`: its shape.

    A value that is kept as JSON text has the tags of everything in it, as there are no columns inside.
    """
    is_text = innermost(kind) == "json"
    found: list[str] = []
    seen: set[str] = set()
    rest = [node]
    while rest:
        each = rest.pop()
        if isinstance(each, list):
            rest += each
        if not isinstance(each, dict):
            continue
        found += listed(each.get(TAGS))
        rest += [value for key, value in each.items() if is_text or key in SAME_COLUMN]
        reference = each.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            with suppress(SchemaProblem):  # inside JSON text it may not resolve
                rest.append(documents.resolve(reference, ""))
    return found


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
