"""Follows each column through all versions of a schema, so that a renamed column stays one column.

A version renames a field by giving it a new name and listing the earlier one as an alias (`aliases` of a field of its columns).
Records of earlier versions keep arriving, so the names of all versions that fit the table decide together which column each
version writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from calve.schema.columns import Json, inner_struct, join, places, with_inner_struct
from calve.schema.evolution import Change, Rule, SchemaProblem, apply, changes

Versions = Sequence[Json | SchemaProblem]
"""Columns of each version, oldest first, or its problem."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How one version fits a table.

    named: its columns under their newest names. None if there is a problem.
    changes: of the table; renames come first and alone: later changes use the new names.
    problem: why no such table can hold it.
    columns: the table's columns, each with `written`, the name by which this version writes it (null: it does not). None until
    the table has changed.
    """

    named: Json | None
    changes: tuple[Change, ...] = ()
    problem: SchemaProblem | None = None
    columns: Json | None = None


def fit(table: Json, versions: Versions) -> list[Fit]:
    """How each version (columns, oldest first; or its problem) fits a table. A version that does not fit renames nothing."""
    problems = {n: each for n, each in enumerate(versions) if isinstance(each, SchemaProblem)}
    while True:
        named, clashes = _named(versions, without=problems)
        found, misfits = {}, dict(clashes)
        for number, columns in named.items():
            try:
                found[number] = changes(table, columns)
            except SchemaProblem as problem:
                misfits[number] = problem
        if not misfits:
            break
        # Without the names that only they declare, other versions may fit.
        declaring = {
            number: problem
            for number, problem in misfits.items()
            if any(each.field.get("aliases") for each in places(versions[number]))
        }
        problems |= declaring or misfits
    fits = []
    for number in range(len(versions)):
        if number in problems:
            fits.append(Fit(None, problem=problems[number]))
        elif found[number]:
            fits.append(Fit(named[number], tuple(_first(found[number]))))
        else:
            fits.append(Fit(named[number], columns=_written(table, named[number])))
    return fits


@dataclass(frozen=True, slots=True)
class Proposal:
    """The effect of one more version.

    changes: of the table, in order. problem: why the table cannot hold it; then nothing changes.
    unfilled: paths of columns that it would not write.
    """

    changes: tuple[Change, ...] = ()
    problem: SchemaProblem | None = None
    unfilled: tuple[str, ...] = ()


def settle(table: Json, versions: Versions) -> tuple[Json, list[Change], list[Fit]]:
    """The table after all changes that the versions need, these changes, and the final fit."""
    done: list[Change] = []
    while True:
        fits = fit(table, versions)
        requested = [each.named for each in fits if each.changes]
        if not requested:
            said = comments(table, [each.named for each in fits if each.named is not None])
            return apply(table, said), [*done, *said], fits
        for columns in requested:
            # A change for an earlier version may conflict with it; the next iteration finds that.
            with suppress(SchemaProblem):
                while wanted := _first(changes(table, columns)):
                    done += wanted
                    table = apply(table, wanted)


def _first(wanted: Sequence[Change]) -> Sequence[Change]:
    """The changes that a table can make at once: a version's renames, or without renames everything else."""
    renames = [each for each in wanted if each.kind == "rename"]
    return [each for each in renames or wanted if each.declared]


def propose(table: Json, versions: Versions, candidate: Json | SchemaProblem) -> Proposal:
    """The effect of a version after all others on a table."""
    table, _, _ = settle(table, versions)
    _, done, fits = settle(table, [*versions, candidate])
    mine = fits[-1]
    if mine.columns is None:
        return Proposal(problem=mine.problem)
    # Fields of a column that it does not write have no `written`.
    unfilled = (each.where for each in places(mine.columns) if each.field.get("written", "") is None)
    return Proposal(tuple(done), unfilled=tuple(unfilled))


@dataclass(slots=True, eq=False)
class _Column:
    """One column: its newest name, and all its earlier names and aliases."""

    name: str
    names: set[str]
    below: list[_Column] = field(default_factory=list)


_Links = list[tuple[_Column, Json, "_Links"]]


def _named(
    versions: Versions, *, without: dict[int, SchemaProblem]
) -> tuple[dict[int, Json], dict[int, SchemaProblem]]:
    """Each version's columns under their newest names, and the versions with ambiguous aliases."""
    left_out = dict(without)
    while True:
        columns: list[_Column] = []
        linked: dict[int, _Links] = {}
        for number, version in enumerate(versions):
            if number in left_out:
                continue
            try:
                linked[number] = _link(columns, version, "")
            except SchemaProblem as problem:
                left_out[number] = problem
                break
        else:
            named = {number: _renamed(versions[number], links) for number, links in linked.items()}
            return named, {n: problem for n, problem in left_out.items() if n not in without}


def _link(columns: list[_Column], struct: Json, where: str) -> _Links:
    """Assign each field to a column; columns learn names, and new ones are appended."""
    current = {column.name: column for column in columns}
    own = {each["name"]: each for each in struct["fields"]}
    links: _Links = []
    taken: set[int] = set()
    for each in struct["fields"]:
        here = join(where, each["name"])
        _refuse_exchange(each, own, current, here)
        column = current.get(each["name"]) or _earlier(each, columns, current, own, here)
        if column is None:
            column = _Column(each["name"], set())
            columns.append(column)
        elif id(column) in taken:
            raise SchemaProblem(here, f'two fields claim to be "{column.name}"', Rule.RENAME_AMBIGUOUS)
        taken.add(id(column))
        aliases = {alias for alias in each.get("aliases", ()) if alias not in own}
        column.names |= {each["name"]} | {a for a in aliases if current.get(a) in (None, column)}
        inner, inside = inner_struct(each["type"], here)
        links.append((column, each, _link(column.below, inner, inside) if inner else []))
    for column, each, _ in links:
        if current.get(each["name"]) is None and set(each.get("aliases", ())) & {column.name}:
            column.name = each["name"]
    return links


def _earlier(
    each: Json, columns: list[_Column], current: dict[str, _Column], own: dict[str, Json], here: str
) -> _Column | None:
    """The column of a renamed field: the one that its aliases name, or that had its name before."""
    aliases = each.get("aliases", ())
    claimed = [current[alias] for alias in aliases if alias in current and alias not in own]
    found = claimed or [c for c in columns if each["name"] in c.names and c.name not in own]
    if len(found) > 1:
        names = " and ".join(f'"{column.name}"' for column in found)
        raise SchemaProblem(here, f"its aliases name {names}, which are two columns", Rule.RENAME_AMBIGUOUS)
    return found[0] if found else None


def _refuse_exchange(each: Json, own: dict[str, Json], current: dict[str, _Column], here: str) -> None:
    """Names that move (a to b, b to c; or a and b swapped) cannot be distinguished from fields that stay."""
    for alias in each.get("aliases", ()):
        if alias == each["name"] or alias not in own or alias not in current:
            continue
        if any(other in current and other != alias for other in own[alias].get("aliases", ())):
            why = f'"{alias}" is renamed itself in the same version'
            raise SchemaProblem(here, why, Rule.RENAME_AMBIGUOUS)


def _renamed(struct: Json, links: _Links) -> Json:
    fields = []
    for column, each, below in links:
        former = sorted(column.names - {column.name})
        named = {key: value for key, value in each.items() if key != "aliases"}
        named |= {"name": column.name, "written": each["name"], "former": former}
        kind = with_inner_struct(each["type"], partial(_renamed, links=below))
        fields.append(named | {"type": kind})
    return struct | {"fields": fields}


def _written(table: Json, named: Json) -> Json:
    """The table's columns with the names by which a version (`_renamed`) writes them."""
    by_name = {each["name"]: each for each in named["fields"]}
    fields = []
    for each in table["fields"]:
        version, kind = by_name.get(each["name"]), each["type"]
        if version:
            inner, _ = inner_struct(version["type"])
            kind = with_inner_struct(kind, partial(_written, named=inner))
        fields.append(each | {"written": version["written"] if version else None, "type": kind})
    return table | {"fields": fields}


def comments(table: Json, versions: Sequence[Json]) -> list[Change]:
    """The changes that give each column its newest comment.

    versions: columns under the table's names, oldest first. A version without a comment changes nothing. A comment that no
    version has belongs to the user and stays.
    """
    given = defaultdict[tuple[str, ...], list[str]](list)
    for each in (place for version in versions for place in places(version)):
        if doc := each.field.get("doc"):
            given[each.path].append(doc)
    found = []
    for each in places(table):
        docs, doc = given.get(each.path), each.field.get("doc")
        if docs and doc != docs[-1] and (not doc or doc in docs):
            parent, name = each.path[:-1], each.path[-1]
            found.append(Change("comment", parent, name, each.field["type"], docs[-1], where=each.where))
    return found
