"""How `topics` is written in calve.yaml, and what cannot stand beside it."""

from __future__ import annotations

from pathlib import Path

from calve.config.job import Entry, Table
from tests.unit.calve.calve_yaml import jobs, refused


def test_an_entry_with_topics_is_a_pattern_with_all_its_options(tmp_path: Path) -> None:
    (job,) = jobs(
        tmp_path,
        "  users: {topic: people}\n"
        "  'shop_{1}': {topics: 'shop\\.(.*)', freshness: 5s, upsert: {key: [id]}, start: latest}\n",
    )
    assert [table.name for table in job.tables] == ["users"]
    (pattern,) = job.patterns
    assert (pattern.name, pattern.topic, pattern.freshness_s) == ("shop_{1}", r"shop\.(.*)", 5.0)
    assert pattern.upsert is not None
    assert pattern.start.at == "latest"
    assert job.entries == (Entry("users", "people"), Entry("shop_{1}", r"shop\.(.*)", pattern=True))


def test_a_job_knows_the_entries_of_others_only_where_it_has_patterns(tmp_path: Path) -> None:
    main, other = jobs(
        tmp_path,
        "  '{topic}': {topics: '.*', job: main}\n  users: {topic: people, job: other, emit: {topic: out}}\n",
        "jobs: {main: {}, other: {}}\n",
    )
    assert main.tables == ()
    assert main.entries[1] == Entry("users", "people", output="out")
    assert (other.entries, other.patterns) == ((), ())
    assert other.tables[0].emit is not None


def test_a_file_without_topics_resolves_as_ever(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, "  trades: {topic: t}\n")
    assert (job.tables, job.patterns, job.entries) == ((Table("trades", "t"),), (), ())


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    more = "exports: {weekly: {table: shop_orders, schedule: rate(1 day), recipients: [a@b.lt]}}\n"
    found = refused(
        tmp_path,
        "  none: {freshness: 5s}\n"
        "  'x_{1}': {topic: x}\n"
        "  plain: {topics: 'a'}\n"
        "  'both_{topic}': {topic: a, topics: a}\n"
        "  'groups_{2}': {topics: '(a)'}\n"
        "  'r_{1}': {topics: '(r)', route: {column: a, value: b}, emit: {topic: o}, start: {offsets: {0: 1}}}\n",
        more,
    )
    assert found == [
        'exports.weekly.table "shop_orders" is not a table that is declared by its name.'
        " Declare it, beside the entry with `topics`: `NAME: {topic: TOPIC}`",
        "tables.none.topic is missing. Add `topic:`",
        'tables."x_{1}" names the tables of many topics, and the entry has no `topics`.'
        " Give it a plain name, or use `topics` instead of `topic`",
        'tables.plain "plain" names no tables: use a-z, 0-9, _ and at least one of {topic}, {1}, {2}.'
        " `{topic}` stands for the topic, `{1}` for the first group",
        'tables."both_{topic}".topics cannot be used together with `topic`. Remove one of the two',
        'tables."groups_{2}" "groups_{2}" asks for group 2, and the expression has 1.'
        " `{topic}` stands for the topic, `{1}` for the first group",
        'tables."r_{1}".emit cannot be used with `topics`: all its tables would write one topic.'
        " Remove it, or declare the topic by name: `NAME: {topic: TOPIC}`",
        'tables."r_{1}".route cannot be used with `topics`: every table has topics of its own.'
        " Remove it, or declare the topic by name: `NAME: {topic: TOPIC}`",
        'tables."r_{1}".start of offsets cannot be used with `topics`: each topic has its own offsets.'
        " Use `earliest`, `latest` or `{timestamp: ...}`",
    ]


def test_an_expression_of_no_use_is_named(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, "  '{topic}': {topics: 'a('}\n")
    assert problem.startswith('tables."{topic}".topics "a(" is not a regular expression: missing ), ')


def test_a_key_of_no_use_is_named_once(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, "  'A{1}': {topics: '(a)'}\n")
    assert problem.startswith('tables."A{1}" "A{1}" names no tables')


def test_offsets_among_the_defaults_are_refused_where_the_entry_has_no_start(tmp_path: Path) -> None:
    shared = "defaults: {start: {offsets: {0: 1}}}\n"
    (problem,) = refused(tmp_path, "  '{topic}': {topics: '.*'}\n", shared)
    assert 'tables."{topic}".start of offsets cannot be used with `topics`' in problem
    jobs(tmp_path, "  '{topic}': {topics: '.*', start: earliest}\n", shared)
