"""YAML files as plain values, with the line of every key.

Scalars follow YAML 1.2's core schema: `no` and `on` are text, `1:30` is text, `010` is ten and a date stays text. Every key is
text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from calve.errors import ConfigError
from calve.settings.problems import KeyPath, Place, Problem, config_error

_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class Document:
    """The values of one or more files, merged."""

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[tuple[Place, Problem]] = field(default_factory=list)

    def place(self, path: KeyPath) -> Place:
        """The line of a key, or of its nearest existing parent."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place(self.file, 0)

    def placed(self, problems: Iterable[Problem]) -> list[tuple[Place, Problem]]:
        return [(self.place(each.path), each) for each in problems]


def read(path: Path, *, fix_if_missing: str) -> Document:
    """One file's values. Raises ConfigError: the file cannot be read, or is not YAML."""
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist", fix=fix_if_missing) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: byte {error.start}", fix="save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    try:
        root = _Loader(text).get_single_node()
    except yaml.YAMLError as error:
        raise config_error(file, [_syntax_problem(file, error)]) from None
    document = Document(file)
    if isinstance(root, yaml.MappingNode):
        document.values = _Walk(document).value(root, ())
    elif root is not None and root.tag != _TAG + "null":
        place = Place(file, root.start_mark.line + 1)
        raise config_error(file, [(place, Problem((), "must be a mapping of keys to values"))])
    return document


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012  PyYAML's own attribute


_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"(~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(
    _TAG + "bool", re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_Loader.add_implicit_resolver(_TAG + "int", re.compile(r"[-+]?[0-9]+\Z"), list("-+0123456789"))
_Loader.add_implicit_resolver(_TAG + "float", re.compile(r"[-+]?[0-9]+\.[0-9]+\Z"), list("-+0123456789"))


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": int,
    "float": float,
}


class _Walk:
    """Turns nodes into values and records places, duplicate keys and unsupported YAML."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._open: list[yaml.Node] = []

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if any(node is parent for parent in self._open):
            self._problem(node, path, "an alias refers to the mapping or list that contains it")
            return None
        self._open.append(node)
        try:
            match node:
                case yaml.MappingNode():
                    return dict(self._items(node, path))
                case yaml.SequenceNode():
                    return [self._item(each, (*path, str(index))) for index, each in enumerate(node.value)]
                case _:
                    return self._scalar(node, path)
        finally:
            self._open.pop()

    def _items(self, mapping: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Any]]:
        lines: dict[str, int] = {}
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                self._problem(key, path, "a key must be plain text")
                continue
            name, line = key.value, key.start_mark.line + 1
            if name in lines:
                reason = f"is given twice; the first one is in line {lines[name]}"
                self._problem(key, (*path, name), reason, "remove one")
                continue
            lines[name] = line
            self._document.places[*path, name] = Place(self._document.file, line)
            yield name, self.value(value, (*path, name))

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self._document.places[path] = Place(self._document.file, node.start_mark.line + 1)
        return self.value(node, path)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        read = _SCALARS.get(str(node.tag).removeprefix(_TAG))
        try:
            if read:
                return read(node.value)
        except (ValueError, KeyError):
            pass
        self._problem(node, path, f'the YAML tag "{node.tag}" cannot be used here')
        return None

    def _problem(self, node: yaml.Node, path: KeyPath, reason: str, fix: str | None = None) -> None:
        place = Place(self._document.file, node.start_mark.line + 1)
        self._document.problems.append((place, Problem(path, reason, fix)))


def _syntax_problem(file: str, error: yaml.YAMLError) -> tuple[Place, Problem]:
    if not isinstance(error, yaml.MarkedYAMLError):  # a control character
        return Place(file, 0), Problem((), f"is not YAML: {str(error).splitlines()[0]}")
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1 if mark else 0)
    what = error.problem or "cannot be parsed"
    if "'\\t'" in what:
        return place, Problem((), "a tab is used for indentation", "indent with spaces")
    context = f" {error.context}" if error.context else ""
    fix = 'put text with a "?", such as a cron expression, in quotes' if "got '?'" in what else None
    return place, Problem((), f"is not YAML: {what}{context}", fix)


def schema_text(folder: Path, file: str) -> str:
    """The text of a schema file. Raises OSError, UnicodeDecodeError: it cannot be read."""
    return (folder / file).read_text(encoding="utf-8")


def at(values: Any, *path: str) -> Any:
    """The value at a path, as written; None if there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def mapping(values: Any, *path: str) -> dict[str, Any]:
    found = at(values, *path)
    return found if isinstance(found, dict) else {}
