"""Renames by field number: a number that goes on under another name is the same column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from calve.schema.columns import Json
from calve.schema.evolution import Rule, SchemaProblem, join


def with_former_names(versions: Sequence[Json | SchemaProblem]) -> list[Json | SchemaProblem]:
    """The versions (columns, oldest first), each field with the earlier names of its number as `aliases`.

    Columns without numbers, which other formats make, are as they were. A version where a number takes the name that belonged to
    another is a problem (`RENAME_AMBIGUOUS`): by the bytes it is one column, by the name another.
    """
    top = _Known()
    found: list[Json | SchemaProblem] = []
    for version in versions:
        if isinstance(version, SchemaProblem) or not any(map(_keys, version["fields"])):
            found.append(version)
            continue
        try:
            found.append(top.named(version, ""))
        except SchemaProblem as problem:
            found.append(problem)
        else:
            top.learn(version)
    return found


@dataclass(slots=True)
class _Known:
    """The fields of a message in the versions so far: names by number, newest last, and what is inside of them."""

    names: dict[int, list[str]] = field(default_factory=dict)
    inside: dict[int, _Known] = field(default_factory=dict)

    def named(self, struct: Json, path: str) -> Json:
        fields = []
        for each in struct["fields"]:
            here, keys = join(path, each["name"]), _keys(each)
            former = list(dict.fromkeys(name for key in keys for name in self.names.get(key, ())))
            others = {name for key, names in self.names.items() if key not in keys for name in names}
            if former and each["name"] not in former and each["name"] in others:
                raise SchemaProblem(here, "the name belonged to another field number", Rule.RENAME_AMBIGUOUS)
            aliases = [name for name in former if name != each["name"]]
            inner = next((self.inside[key] for key in keys if key in self.inside), _Known())
            made = each | {"type": inner.typed(each["type"], here)}
            fields.append(made | ({"aliases": aliases} if aliases else {}))
        return struct | {"fields": fields}

    def typed(self, kind: Json, path: str) -> Json:
        if not isinstance(kind, dict):
            return kind
        match kind["type"]:
            case "struct":
                return self.named(kind, path)
            case "list":
                return kind | {"element": self.typed(kind["element"], f"{path}[]")}
            case _:
                return kind | {"value": self.typed(kind["value"], f"{path}{{}}")}

    def learn(self, struct: Json) -> None:
        for each in struct["fields"]:
            inner = _inner(each["type"])
            for key in _keys(each):
                for other in self.names.values():
                    if each["name"] in other:
                        other.remove(each["name"])
                self.names.setdefault(key, []).append(each["name"])
                if inner is not None:
                    self.inside.setdefault(key, _Known()).learn(inner)


def _keys(each: Json) -> list[int]:
    """What a column is known by: its number or, for a oneof, those of its members (as negative numbers)."""
    if "number" in each:
        return [each["number"]]
    if not isinstance(each["type"], dict) or each["type"]["type"] != "struct":
        return []
    return [-member["number"] for member in each["type"]["fields"] if "number" in member]


def _inner(kind: Json) -> Json | None:
    while isinstance(kind, dict) and kind["type"] != "struct":
        kind = kind["element" if kind["type"] == "list" else "value"]
    return kind if isinstance(kind, dict) else None
