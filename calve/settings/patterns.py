"""Entries of `tables` that keep many topics: what their keys may be, and what such an entry cannot have.

Like `relations`, these work on the values as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from calve.settings.problems import Problem
from calve.topics import expression_problem, naming_problem

_OF_ONE_TOPIC = {
    "route": "every table has topics of its own",
    "emit": "all its tables would write one topic",
}


def has_topics(table: Any) -> bool:
    """Whether an entry keeps many topics."""
    return isinstance(table, dict) and table.get("topics") is not None


def pattern_problems(tables: Mapping[str, Any], defaults: Any) -> Iterator[Problem]:
    """Every problem between an entry's key, its topics and its other options."""
    shared = defaults.get("start") if isinstance(defaults, dict) else None
    for name, table in tables.items():
        if has_topics(table):
            yield from _of_pattern(name, table, shared)
        elif isinstance(table, dict):
            yield from _of_table(name, table)


def _of_table(name: str, table: Mapping[str, Any]) -> Iterator[Problem]:
    if table.get("topic") is None:
        yield Problem(("tables", name, "topic"), "is missing", "add `topic:`")
    if "{" in name and naming_problem(name) is None:
        reason = "names the tables of many topics, and the entry has no `topics`"
        yield Problem(
            ("tables", name), reason, "give it a plain name, or use `topics` in the place of `topic`"
        )


def _of_pattern(name: str, table: Mapping[str, Any], shared: Any) -> Iterator[Problem]:
    topics = table["topics"]
    if isinstance(topics, str) and expression_problem(topics) is None:
        groups = re.compile(topics).groups
        if "{" not in name or (naming_problem(name) is None and naming_problem(name, groups)):
            reason = naming_problem(name, groups) or ""
            yield Problem(
                ("tables", name), reason, "`{topic}` stands for the topic, `{1}` for the first group"
            )
    announce = table.get("announce")
    if isinstance(announce, dict) and announce.get("alert_on"):
        reason = "cannot be used with `topics`: its tables have names that nobody knows yet"
        yield Problem(("tables", name, "announce", "alert_on"), reason, "remove it")
    if table.get("topic") is not None:
        yield Problem(
            ("tables", name, "topics"), "cannot be used together with `topic`", "remove one of the two"
        )
    for key, why in _OF_ONE_TOPIC.items():
        if table.get(key) is not None:
            fix = "remove it, or declare the topic by name: `NAME: {topic: TOPIC}`"
            yield Problem(("tables", name, key), f"cannot be used with `topics`: {why}", fix)
    start = table.get("start") if table.get("start") is not None else shared
    if isinstance(start, dict) and "offsets" in start:
        reason = "of offsets cannot be used with `topics`, each of which has its own"
        yield Problem(("tables", name, "start"), reason, "use `earliest`, `latest` or `{timestamp: ...}`")
