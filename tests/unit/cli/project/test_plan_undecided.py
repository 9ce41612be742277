"""What `calve plan` says of fields that somebody should decide on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.config.job import Job, Kafka, Lake, Registry, Source, Table
from calve.config.steps import Flatten, Mask, Rule
from calve.modes.aggregate import Aggregate, Measure
from calve.schema.columns import KAFKA, Json, field, struct, with_ids
from calve.settings import load
from calve.settings.resolving import StackDefaults
from cli.project.plan import fields_to_review as plan_without_table
from cli.project.plan.change import Change
from cli.project.plan.changes import Bills
from cli.project.plan.command import tree as plan_tree
from cli.project.plan.deployed import DeployedTable
from cli.project.plan.fields_to_review import DECIDE, proposed, read_candidate, tree, undecided
from cli.project.plan.survey import read_records

HASH, KEEP = Rule("hash"), Rule("keep")
CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "id", "type": "long"}, {"name": "email", "type": "string"}],
}
SALE: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": CUSTOMER},
    {"name": "note", "type": "string", "confluent:tags": ["PII"]},
    {"name": "phone", "type": "string"},
]


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Sale", "fields": [*SALE, *fields]})


TABLE = Table("sales", "sales", value=Source(format="avro", schema=avro()))


def said(table: Table, deployed: DeployedTable | None = None) -> list[str]:
    job = Job("t", "main", Kafka("b:1"), None, Lake("t", "s3://lake"), (table,))
    held = {"sales": deployed} if deployed else {}
    return list(undecided(read_records([job], held), held)["sales"])


def holding(*columns: Json, fields: frozenset[str] | None = None) -> DeployedTable:
    return DeployedTable("-", "-", 2, with_ids(struct(*columns, KAFKA)), fields=fields)


def looks(path: str, why: str) -> str:
    return f"{path} looks like personal data ({why})"


EMAIL, NOTE, PHONE = (
    looks("customer.email", "e-mail"),
    looks("note", "tagged PII"),
    looks("phone", "telephone number"),
)


def test_of_a_new_table_every_field_that_looks_personal_is_named() -> None:
    assert said(TABLE) == [EMAIL, NOTE, PHONE]


def test_a_rule_is_a_decision_by_path_by_tag_and_be_it_keep() -> None:
    assert said(replace(TABLE, steps=(Mask({"customer": KEEP, "phone": HASH}),))) == [NOTE]
    assert said(replace(TABLE, steps=(Mask({"customer.id": HASH}, {"PII": KEEP}),))) == [EMAIL, PHONE]
    assert said(replace(TABLE, steps=(Flatten(), Mask({"customer_email": HASH})))) == [NOTE, PHONE]


def test_of_a_table_that_exists_only_fields_that_it_does_not_have_are_named() -> None:
    customer = struct(field("id", "long"), field("email", "string"))
    assert said(TABLE, holding(field("id", "long"), field("customer", customer))) == [NOTE, PHONE]
    flat = (field("customer_email", "string"), field("phone", "string"))
    assert said(replace(TABLE, steps=(Flatten(),)), holding(*flat)) == [NOTE]


def test_of_totals_only_what_they_are_grouped_by_gets_in() -> None:
    totals = Aggregate(("phone",), (Measure("sales", "count(*)"),))
    assert said(replace(TABLE, aggregate=totals)) == [PHONE]


def test_what_is_in_quarantine_is_named_and_what_it_looks_like() -> None:
    table = replace(TABLE, steps=(Mask({"note": KEEP}),), quarantine_new_fields=True)
    held = holding(field("id", "long"), fields=frozenset({"id", "phone"}))
    decide = "name it in the step mask, with a rule or keep"
    assert said(table, held) == [
        f"customer.email is in quarantine, and looks like personal data (e-mail): {decide}",
        f"customer.id is in quarantine: {decide}",
        PHONE,
    ]
    assert said(table) == [EMAIL, PHONE]


def test_a_line_for_each_stands_below_the_table() -> None:
    change = Change("tables", "sales", "=", undecided=(EMAIL, NOTE))
    assert list(plan_tree("t", "account 1", [change], Bills(0.0, 0.0, ()), 1.0).lines())[1:3] == [
        f"t  tables  = sales  ?  {EMAIL}",
        f"t  tables  = sales  ?  {NOTE}",
    ]


def test_what_the_plan_advises_is_what_settings_accept(tmp_path: Path) -> None:
    (tmp_path / "sale.avsc").write_text(avro())
    for advice in re.findall("`mask: ({.*?})`", DECIDE):
        config = tmp_path / "calve.yaml"
        step = yaml.safe_load(advice.replace("NAME", "phone"))
        table = {
            "topic": "sales",
            "value": {"format": "avro", "schema": "sale.avsc"},
            "steps": [{"mask": step}],
        }
        masking = {} if "keep" in advice else {"masking": {"secret": "env:KEYS"}}
        config.write_text(yaml.safe_dump({"name": "t", "tables": {"sales": table}, **masking}))
        [job] = load(config, stack=StackDefaults(Kafka("b:1"), Registry("http://r"), "s3://lake"))
        assert job.tables[0].masks is ("keep" not in advice)
        assert "phone" not in " ".join(said(job.tables[0]))
    assert job.masking is None


def test_of_a_candidate_only_what_it_adds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "next.avsc"
    contact = {"type": "record", "name": "Contact", "fields": [{"name": "phone", "type": "string"}]}
    file.write_text(
        avro(
            {"name": "iban", "type": "string"},
            {"name": "contact", "type": contact},
            {"name": "n", "type": "int"},
        )
    )
    monkeypatch.setattr(plan_without_table, "_columns", lambda *_: None)
    job = Job(
        "t",
        "main",
        Kafka("b:1"),
        None,
        Lake("t", "s3://lake"),
        (replace(TABLE, steps=(Mask({"iban": HASH}),)),),
    )
    found, told = proposed([job], "sales", read_candidate(file))
    assert told == [looks("contact.phone", "telephone number")]
    assert [each.mark for each in tree("t", [], told).below] == ["?"]
    assert found.problem is None
