"""The plan names everything that cannot work, with its place in calve.yaml."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from calve.config.deployment import Deployment, JobDeployment, LakeDeployment
from calve.config.job import Job, Kafka, Lake, Registry, Source, Table
from calve.config.maintenance import Maintenance, RowRetention
from calve.config.publishing import Announce, Emit, Export, Measure
from calve.config.steps import Filter, Lookup
from calve.errors import Suspended
from calve.modes.aggregate import Aggregate, Window
from calve.modes.aggregate import Measure as Total
from calve.modes.upsert import Deduplicate, Upsert
from calve.schema.columns import KAFKA, Transform, field, struct, with_ids
from calve.settings.problems import Problem
from cli.kafka import Cluster
from cli.project.plan.change import Change, Difference
from cli.project.plan.changes import Bills, changes
from cli.project.plan.checks import (
    consequences,
    index_warnings,
    problems,
    rights_warnings,
    topic_problems,
    topic_warnings,
)
from cli.project.plan.command import counted, folded, tree
from cli.project.plan.deployed import Deployed, DeployedTable
from cli.project.plan.survey import Foreseen, Read, Survey, engines, read_records, survey

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "price", "type": "double"},
    {"name": "side", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
AVRO = json.dumps({"type": "record", "name": "Sale", "fields": FIELDS})
TABLE = Table("sales", "shop.sales", value=Source(format="avro", schema=AVRO))
EXPORT = Export("weekly", "t", "sales", "at", "cron(0 6 ? * MON *)", ("a@b.c",))


def deployment(*tables: Table, exports: tuple[Export, ...] = (), registry: str | None = None) -> Deployment:
    settings = Job(
        "t",
        "main",
        Kafka("127.0.0.1:1"),
        Registry(registry) if registry else None,
        Lake("t", "s3://lake"),
        tables,
    )
    return Deployment("t", (JobDeployment(settings),), LakeDeployment("t"), exports=exports)


def found(
    *exports: Export, held: DeployedTable | None = None, made: Any = None, **settings: Any
) -> list[Problem]:
    whole = deployment(replace(TABLE, **settings), exports=exports)
    tables = {"sales": held} if held else {}
    read = read_records([whole.jobs[0].settings], tables)
    asked = Survey(whole, read, {"sales": Foreseen(made)} if made else {}, engines(read, {}))
    return list(problems(asked, tables))


def test_a_table_that_can_work_has_no_problem() -> None:
    assert found(EXPORT) == []
    assert (
        found(
            replace(EXPORT, columns=("id", "price"), filter="side == 'BUY' and price > 1"),
            event_time="at",
            partition_by=(Transform("at", "day"), Transform("id", "bucket", 8)),
            sort_by=(Transform("price", descending=True),),
            upsert=Upsert(("id",), "at"),
            announce=Announce("side"),
            maintenance=Maintenance(rows=RowRetention("at", 86400.0)),
        )
        == []
    )


@pytest.mark.parametrize(
    ("settings", "at", "why"),
    [
        ({"event_time": "att"}, ("event_time",), "did you mean at?"),
        ({"event_time": "side"}, ("event_time",), "side is a string"),
        (
            {"event_time": "att", "partition_by": (Transform("att", "day"),)},
            ("event_time",),
            "no column att",
        ),
        (
            {"partition_by": (Transform("id"), Transform("prize"))},
            ("partition_by", "1"),
            "did you mean price?",
        ),
        ({"partition_by": (Transform("side", "day"),)}, ("partition_by", "0"), "side is a string"),
        ({"sort_by": (Transform("prize"),)}, ("sort_by", "0"), "did you mean price?"),
        ({"upsert": Upsert(("userid",))}, ("upsert", "key"), "no column userid"),
        ({"upsert": Upsert(("price",))}, ("upsert", "key"), "price is a double"),
        ({"upsert": Upsert(("id",), "seq")}, ("upsert", "order_by"), "no column seq"),
        ({"deduplicate": Deduplicate(("ids",))}, ("deduplicate", "key"), "did you mean id?"),
        ({"announce": Announce("price")}, ("announce", "count_by"), "neither a text"),
        ({"announce": Announce("sides")}, ("announce", "count_by"), "did you mean side?"),
        ({"emit": Emit("out", key=("ids",))}, ("emit", "key"), "did you mean id?"),
        (
            {"maintenance": Maintenance(rows=RowRetention("side", 1.0))},
            ("maintenance", "rows", "column"),
            "neither a timestamp",
        ),
        (
            {"aggregate": Aggregate(("sid",), (Total("n", "count(*)"),))},
            ("aggregate", "by"),
            "no column sid; did you mean side?",
        ),
        (
            {"aggregate": Aggregate(("side",), (Total("n", "count(*)"),), Window("price", 1))},
            ("aggregate", "window"),
            "price is a double",
        ),
        (
            {"aggregate": Aggregate(("side",), (Total("n", "count(*)"), Total("sum", "sum(price)")))},
            ("aggregate", "measures", "sum"),
            "depends on the order",
        ),
        (
            {"engine": "columnar", "steps": (Lookup("b", {"id": "id"}, {"c": "d"}),)},
            ("engine",),
            "it has the step lookup",
        ),
        (
            {"value": Source(format="avro", schema='{"type": "record", "name": "R", "fields": []}')},
            ("value",),
            "EMPTY_STRUCT",
        ),
    ],
)
def test_what_cannot_work_is_named_with_its_place(settings: Any, at: tuple[str, ...], why: str) -> None:
    (problem,) = found(**settings)
    assert problem.path == ("tables", "sales", *at)
    assert why in problem.reason
    assert problem.fix


@pytest.mark.parametrize(("guid", "places"), [(None, [("emit", "schema_id")]), (5, [])])
def test_headers_of_an_output_topic_need_a_registry_with_guids(
    guid: int | None, places: list[tuple[str, ...]]
) -> None:
    emit = Emit("out", schema_id="header")
    read = read_records([deployment(TABLE).jobs[0].settings], {})["sales"]
    assert isinstance(read, Read)
    registered = replace(read.versions.values[0], id=1, guid=guid)
    read = replace(read, versions=read.versions._replace(values=[registered]))
    whole = deployment(replace(TABLE, value=Source(), emit=emit))
    told = problems(Survey(whole, {"sales": read}, {}, {}), {})
    assert [each.path[2:] for each in told] == places


def test_each_of_several_is_named() -> None:
    told = found(
        sort_by=(Transform("prize"), Transform("sides")),
        aggregate=None,
        upsert=Upsert(("userid",)),
        announce=Announce("nothing"),
    )
    assert [each.path[2:] for each in told] == [
        ("sort_by", "0"),
        ("sort_by", "1"),
        ("upsert", "key"),
        ("announce", "count_by"),
    ]
    measures = (Total("a", "sum(prize)"), Total("b", "sum(side)"), Total("c", "count(*)"))
    told = found(aggregate=Aggregate(("side",), measures))
    assert [each.path[-1] for each in told] == ["a", "b"]


@pytest.mark.parametrize(
    ("changed", "at", "why"),
    [
        ({"columns": ("id", "prize")}, ("columns", "1"), "no column prize; did you mean price?"),
        ({"filter": "sid == 'BUY'"}, ("filter",), "no column sid; did you mean side?"),
        ({"filter": "price == 'dear'"}, ("filter",), "does not fit"),
        ({"time_column": "aat"}, ("time_column",), "no column aat"),
        ({"time_column": "side"}, ("time_column",), "neither a timestamp nor a date"),
        (
            {"group_by": ("sides",), "measures": (Measure("n", "count"),)},
            ("group_by", "0"),
            "did you mean side?",
        ),
        ({"measures": (Measure("v", "sum", "prices"),)}, ("measures", "v"), "did you mean price?"),
        ({"measures": (Measure("v", "sum", "side"),)}, ("measures",), "cannot sum side"),
    ],
)
def test_an_export_is_held_against_its_table(changed: Any, at: tuple[str, ...], why: str) -> None:
    (problem,) = found(replace(EXPORT, **changed))
    assert problem.path == ("exports", "weekly", *at)
    assert why in problem.reason


def test_an_export_of_a_table_with_steps_is_held_against_what_they_make() -> None:
    made = struct(field("id", "long"), field("at", "timestamptz"))
    (problem,) = found(replace(EXPORT, columns=("side",)), steps=(Filter("true"),), made=made)
    assert problem.path == ("exports", "weekly", "columns", "0")
    refused = Suspended("step_unusable", "steps[0].filter: no", fix="change it", at=("steps", "0", "filter"))
    (problem,) = found(EXPORT, steps=(Filter("true"),), made=refused)
    assert problem.path == ("tables", "sales", "steps", "0", "filter")


def test_columns_of_a_table_that_exists_are_its_own_and_those_that_its_job_will_add() -> None:
    held = DeployedTable("-", "-", 2, with_ids(struct(field("id", "long"), field("old", "string"), KAFKA)))
    assert found(replace(EXPORT, columns=("old", "price")), held=held, sort_by=(Transform("old"),)) == []
    steps = (Filter("true"),)
    made = struct(field("id", "string"))
    (problem,) = found(held=held, steps=steps, made=made)
    assert problem.path == ("tables", "sales", "steps")
    assert "the table holds long, the schema wants string" in problem.reason


def test_totals_of_another_type_than_the_table_has_are_a_problem() -> None:
    totals = Aggregate(("side",), (Total("n", "max(id)"),))
    columns = with_ids(struct(field("side", "string"), field("n", "double"), KAFKA))
    held = DeployedTable("-", "-", 2, columns, mode=totals.note(columns))
    (problem,) = found(held=held, aggregate=totals)
    assert problem.path == ("tables", "sales", "aggregate")
    assert "holds n as double" in problem.reason
    columns = with_ids(struct(field("side", "string"), field("n", "long"), KAFKA))
    assert found(held=replace(held, columns=columns), aggregate=totals) == []


def test_topics_that_do_not_exist_are_problems_and_expressions_without_any_warnings() -> None:
    entry = replace(TABLE, name="x_{topic}", topic="x\\..*")
    job = deployment(TABLE).jobs[0].settings
    job = replace(
        job, tables=(TABLE, replace(TABLE, name="x_a", topic="x.a", pattern="x_{topic}")), patterns=(entry,)
    )
    assert list(topic_problems([job], {"shop.sales"})) == []
    (problem,) = topic_problems([job], {"shop.sale"})
    assert problem.path == ("tables", "sales", "topic")
    assert problem.reason == "topic shop.sales does not exist on 127.0.0.1:1"
    (warning,) = topic_warnings([job], {"shop.sales"})
    assert warning.path == ("tables", "x_{topic}", "topics")
    assert list(topic_warnings([job], {"x.a"})) == []


def test_rights_on_every_table_are_a_warning_until_the_clusters_are_named() -> None:
    wide = replace(deployment(TABLE).lake, namespace="cluster_id")
    assert [each.path for each in rights_warnings(wide)] == [("lake", "namespace")]
    assert list(rights_warnings(replace(wide, cluster_ids=("a1",)))) == []
    assert list(rights_warnings(deployment(TABLE).lake)) == []


def test_a_disk_that_may_be_too_small_for_an_index_is_a_warning() -> None:
    by_key = replace(TABLE, upsert=Upsert(("id",)))
    jobs = deployment(by_key).jobs
    assert list(index_warnings(jobs, {"sales": 900_000_000})) == []
    (warning,) = index_warnings(jobs, {"sales": 2_000_000_000})
    assert warning.path == ("tables", "sales", "upsert")
    assert warning.reason == (
        "sales: its topic holds 2,000,000,000 records. With as many keys the index needs up to 96 GB of the driver's disk,"
        " and G.1X has 44 GB"
    )
    larger = [replace(each, worker="R.4X") for each in jobs]
    assert list(index_warnings(larger, {"sales": 2_000_000_000})) == []
    windowed = deployment(replace(TABLE, deduplicate=Deduplicate(("id",), 1))).jobs
    assert list(index_warnings(windowed, {"sales": 2_000_000_000})) == []


def test_a_change_that_suspends_the_table_is_a_problem() -> None:
    columns = with_ids(struct(*(field(n, k) for n, k in (("id", "long"), ("side", "string"))), KAFKA))
    held = DeployedTable("-", "-", 2, columns, mode=Deduplicate(("id",)).note(columns))
    whole = deployment(replace(TABLE, upsert=Upsert(("id",))))
    there = Deployed("t", True, tables={"sales": held})
    (problem,) = consequences(changes(whole, there), {})
    assert problem.path == ("tables", "sales", "upsert")
    assert "the job will suspend it" in problem.reason
    assert list(consequences(changes(deployment(TABLE), Deployed("t")), {})) == []


def test_systems_that_do_not_answer_are_problems_and_offline_says_what_was_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cli.project.plan.survey.Cluster", partial(Cluster, patience_s=0.5))
    registered = replace(TABLE, name="others", value=Source())
    whole = deployment(
        replace(TABLE, sort_by=(Transform("prize"),)), registered, registry="http://127.0.0.1:1"
    )
    asked = survey(whole, Deployed("t"), offline=False)
    assert [each.path for each in asked.faults] == [("kafka",), ("registry",)]
    assert all("--offline" in (each.fix or "") for each in asked.faults)
    assert list(asked.records) == ["sales"]
    asked = survey(whole, Deployed("t"), offline=True)
    assert (asked.faults, list(asked.records), asked.listed) == ([], ["sales"], None)
    assert "--offline" in asked.skipped[0]
    (problem,) = problems(asked, {})
    assert problem.path == ("tables", "sales", "sort_by", "0")


def test_tables_of_an_entry_with_topics_count_and_stand_below_it() -> None:
    tables = [
        Change("tables", f"x_{n}", "+", note="from x", engine="columnar", entry="x_{topic}") for n in "ab"
    ]
    entry = Change("tables", "x_{topic}", "+", note="from topics x: 2 tables")
    assert counted([*tables, entry]) == "2 new"
    assert counted([*tables, entry], 2) == "2 problems: this cannot work. 2 new"
    lines = list(tree("t", "account 1", [*tables, entry], Bills(0.0, 0.0, ()), 1.0).lines())
    assert lines[1:4] == [
        "t  tables  + x_{topic}  from topics x: 2 tables",
        "t  tables  + x_{topic}  + x_a  from x, engine columnar",
        "t  tables  + x_{topic}  + x_b  from x, engine columnar",
    ]


def test_on_a_terminal_tables_of_an_entry_of_which_the_same_is_said_are_one_line() -> None:
    tables = [Change("tables", f"x_{n}", "+", note=f"from x.{n}", entry="x_{topic}") for n in range(6)]
    other = replace(tables[0], name="x_b", undecided=("email",))
    entry = Change("tables", "x_{topic}", "+", note="from topics x: 7 tables")
    assert folded([*tables, other, entry]) == [
        replace(tables[0], name="x_0, x_1, x_2, 3 more", note=""),
        other,
        entry,
    ]
    assert folded(tables[:3]) == tables[:3]


def test_on_a_terminal_named_tables_that_move_from_one_job_to_another_are_one_line() -> None:
    def moved(name: str, key: str, to: str) -> Change:
        return Change("tables", name, "~", (Difference(key, "main", to),))

    tables = [moved(f"t{n}", "job", "main-1") for n in range(5)]
    other, slower = moved("u", "job", "main-2"), [moved(f"s{n}", "freshness", "1m") for n in range(5)]
    assert folded([*tables, other, *slower]) == [
        replace(tables[0], name="t0, t1, t2, 2 more"),
        other,
        *slower,
    ]


def test_in_a_pipe_a_reason_is_told_though_something_stands_below_it() -> None:
    change = Change("tables", "t", "~", note="its steps cannot be run: no", undecided=("email is personal",))
    lines = list(tree("t", "account 1", [change], Bills(0.0, 0.0, ()), 1.0).lines())
    assert lines[1:3] == [
        "t  tables  ~ t  its steps cannot be run: no",
        "t  tables  ~ t  ?  email is personal",
    ]
