"""Schema files that calve.yaml names: they are read with it, and shipped as text.

Like `relations`, the checks work on the values as written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calve.declared import NO_ID
from calve.evolution import SchemaProblem
from calve.formats import FORMATS, Top, columns
from calve.names import FIELD_NAME
from calve.registry import Schema
from calve.settings.problems import Problem


def schema_text(folder: Path, file: str) -> str:
    """The text of a schema file.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
    """
    return (folder / file).read_text(encoding="utf-8")


def schema_problems(values: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    """Files that cannot be read, and schemas that no table can hold."""
    tables = values.get("tables")
    for name, table in tables.items() if isinstance(tables, dict) else ():
        value, key = (_at(table, part) for part in ("value", "key"))
        taken = _name(key, "column") or "key" if key is not None else None
        of_value = Top(
            rest=_name(value, "rest"),
            taken=taken,
            message=_text(value, "message"),
            changes=_at(table, "change_data") is not None,
        )
        tops = {"value": (value, of_value), "key": (key, Top(taken, message=_text(key, "message")))}
        for part, (section, top) in tops.items():
            problem = _problem(section or {}, folder, top)
            if problem:
                yield Problem(("tables", name, part, "schema"), *problem)


def asks_registry(values: Mapping[str, Any]) -> bool:
    """Whether any table needs a registry."""
    tables = values.get("tables")
    parts = [
        _at(table, part) or {}
        for table in (tables.values() if isinstance(tables, dict) else [None])
        for part in ("value", "key")
        if part == "value" or _at(table, part) is not None
    ]
    return any(each.get("format") in (None, "registry") for each in parts)


def _problem(section: Mapping[str, Any], folder: Path, top: Top) -> tuple[str, str | None] | None:
    file, kind = section.get("schema"), str(section.get("format")).upper()
    if not isinstance(file, str) or not file or kind == "REGISTRY":
        return None
    try:
        text = schema_text(folder, file)
    except (OSError, UnicodeDecodeError) as error:
        why = "is no UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or "cannot be read"
        return f'"{folder / file}" cannot be read: {why}', "name a schema file, relative to calve.yaml"
    if kind not in FORMATS:
        return None
    try:
        columns(Schema(NO_ID, text, kind), top)
    except SchemaProblem as problem:
        return f'"{file}" makes no table: {problem.message}', None
    return None


def _at(table: Any, part: str) -> dict[str, Any] | None:
    found = table.get(part) if isinstance(table, dict) else None
    return found if isinstance(found, dict) else None


def _name(section: Mapping[str, Any] | None, key: str) -> str | None:
    found = _text(section, key)
    return found if found and FIELD_NAME.fullmatch(found) else None


def _text(section: Mapping[str, Any] | None, key: str) -> str | None:
    found = (section or {}).get(key)
    return found if isinstance(found, str) else None
