"""What `calve plan` says of tables with steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calve.config.steps import Filter, Flatten, Mask, Rule, Sql
from calve.errors import CalveError
from calve.schema.columns import KAFKA, field, struct, with_ids
from cli.project.plan.change import Change, of_table
from cli.project.plan.changes import changes
from cli.project.plan.deployed import DeployedTable
from tests.unit.cli.project.test_plan import DEPLOYMENT, SAME, TABLE

STEPS = (Flatten(), Filter("price > 0"))
FLAT = struct(field("id", "long"), field("customer_id", "long"))


def planned(deployed: DeployedTable | None, made: Any) -> Change:
    tables = {} if deployed is None else {"trades": deployed}
    jobs = {} if deployed is None else SAME.jobs
    found = changes(DEPLOYMENT, replace(SAME, jobs=jobs, tables=tables), {"trades": made})
    return next(each for each in found if each.section == "tables")


def holding(*fields: Any) -> DeployedTable:
    return DeployedTable("day(at)", "-", 2, with_ids(struct(*fields, KAFKA)))


def test_a_new_table_shows_the_columns_that_its_steps_make() -> None:
    change = planned(None, FLAT)
    assert (change.kind, change.note) == ("+", "from stock.trades")
    assert [(each.key, each.configured) for each in change.differences] == [
        ("columns", "id long, customer_id long")
    ]


def test_columns_that_the_table_lacks_are_named() -> None:
    change = planned(holding(field("id", "long")), FLAT)
    assert (change.kind, change.differences[-1].configured) == ("~", "add customer_id")
    assert planned(holding(*FLAT["fields"]), FLAT).kind == "="


def test_what_the_table_cannot_hold_is_said_before_the_job_suspends_it() -> None:
    change = planned(holding(field("id", "string")), FLAT)
    assert change.kind == "~"
    (suspended,) = change.consequences
    assert suspended.breaking
    assert suspended.text.startswith(
        "the job will suspend it: id: the table holds string, the schema wants long"
    )


def test_steps_that_cannot_be_run_say_which_and_why() -> None:
    problem = CalveError("steps[1].filter: there is no column prize; did you mean price?")
    assert planned(holding(*FLAT["fields"]), problem).note == (
        "it cannot be made: steps[1].filter: there is no column prize; did you mean price?"
    )


def test_steps_are_settings_of_the_job() -> None:
    mask = Mask(fields={"email": Rule("hash")})
    shown = of_table(replace(TABLE, steps=(*STEPS, Sql("select 1"), mask)))
    assert shown["steps"] == (
        'flatten {"separator": "_"}, filter {"condition": "price > 0"}, sql {"query": "select 1"}, mask'
        ' {"fields": {"email": {"argument": null, "how": "hash"}}, "headers": "null", "key": "hash"}'
    )
