"""Topics by regular expression: which topics of a cluster an entry of calve.yaml keeps, and the names of their tables."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from calve.config.job import Entry, Job, Table
from calve.names import as_table_name, table_problem

PLACEHOLDER = re.compile(r"\{(topic|[1-9][0-9]*)\}")
REGISTRYS_OWN = "_schemas"
INTERNAL = "__"
_OF_ONE_LANGUAGE = re.compile(r"\(\?(P|\(|#|<(?![=!]))")
_LITERAL = re.compile(r"[A-Za-z0-9_-]|\\[.-]")

Keeper = Callable[[str], str | None]
"""The topic of the table with a name; None if there is no such table."""


@dataclass(frozen=True, slots=True)
class NotKept:
    """A matching topic that has no table, and the reason."""

    topic: str
    entry: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class Expansion:
    """The tables of a job's patterns."""

    tables: tuple[Table, ...] = ()
    not_kept: tuple[NotKept, ...] = ()


def expand(job: Job, topics: Iterable[str], keeper: Keeper) -> Expansion:
    """The tables of the job's patterns, by topic.

    A topic that an entry names belongs to that entry, never to a pattern. Of several matching patterns, the first in calve.yaml
    has it. Internal topics of Kafka and the registry, and output topics, have no table. Of a job's parts each has its own topics.
    """
    patterns = {each.name: each for each in job.patterns}
    named = {each.name: each.topic for each in job.entries if not each.pattern}
    matches = sorted(_matched(job.entries, set(topics)))
    alike: dict[str, list[str]] = {}
    for topic, _, table in matches:
        alike.setdefault(table, []).append(topic)
    tables, problems = [], []
    for topic, entry, table in matches:
        if entry not in patterns or not job.has(topic):
            continue
        others = [each for each in alike[table] if each != topic]
        reason = table_problem(table)
        if table in named:
            reason = f'its table would be "{table}", which calve.yaml keeps from topic {named[table]}'
        elif others and reason is None and keeper(table) != topic:
            reason = f'its table would be "{table}", and so would that of {", ".join(others)}'
        if reason is None:
            tables.append(replace(patterns[entry], name=table, topic=topic, pattern=entry))
        else:
            fix = f"in calve.yaml, give it a table of its own: `NAME: {{topic: {topic}}}`"
            problems.append(NotKept(topic, entry, reason, fix))
    return Expansion(tuple(tables), tuple(problems))


def _matched(entries: Sequence[Entry], topics: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each topic that a pattern matches, with the pattern's entry and the name of the table."""
    patterns = [(each.name, re.compile(each.topic)) for each in entries if each.pattern]
    taken = {each.topic for each in entries if not each.pattern} | {each.output for each in entries}
    for topic in topics:
        if topic in taken or topic == REGISTRYS_OWN or topic.startswith(INTERNAL):
            continue
        for name, expression in patterns:
            if match := expression.fullmatch(topic):
                yield topic, name, table_name(name, match)
                break


def table_name(pattern: str, match: re.Match[str]) -> str:
    """The table name for a topic; it may be invalid."""

    def filled(place: re.Match[str]) -> str:
        group = 0 if place[1] == "topic" else int(place[1])
        return as_table_name(match[group] or "")

    return PLACEHOLDER.sub(filled, pattern)


def name_pattern(name: str) -> str:
    """An expression for the table names that a name with placeholders can make."""
    return PLACEHOLDER.sub("[a-z0-9_]*", name)


def expression_problem(text: str) -> str | None:
    """Why `text` is not an expression that Java and Python read alike; None if it is."""
    if found := _OF_ONE_LANGUAGE.search(re.sub(r"\\.", "", text)):
        return f'"{text}" has "{found[0]}", which Java and Python do not read alike'
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return f'"{text}" is not a regular expression: {error}'
    return None


def naming_problem(name: str, groups: int | None = None) -> str | None:
    """Why `name` cannot name tables of an expression with so many groups (None: unknown); None if it can."""
    plain = PLACEHOLDER.sub("x", name)
    if plain == name or table_problem(plain):
        return f'"{name}" names no tables: use a-z, 0-9, _ and at least one of {{topic}}, {{1}}, {{2}}'
    wanted = [int(each) for each in PLACEHOLDER.findall(name) if each != "topic"]
    if groups is not None and wanted and max(wanted) > groups:
        return f'"{name}" asks for group {max(wanted)}, and the expression has {groups}'
    return None


def literal_prefix(expression: str) -> str:
    """The prefix of every topic that the expression matches, as far as it is literal."""
    if _has_alternatives(expression):
        return ""
    letters: list[str] = []
    end = 0
    while found := _LITERAL.match(expression, end):
        letters.append(found[0].removeprefix("\\"))
        end = found.end()
    if expression[end : end + 1] in ("*", "?", "{"):
        letters = letters[:-1]
    return "".join(letters)


def _has_alternatives(expression: str) -> bool:
    """Whether a `|` is outside all groups."""
    plain = re.sub(r"\[[^\]]*\]", "", re.sub(r"\\.", "", expression))
    while (shorter := re.sub(r"\([^()]*\)", "", plain)) != plain:
        plain = shorter
    return "|" in plain
