"""Of which columns a table's metadata holds no bounds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from calve.config.job import Table
from calve.config.steps import Filter, Flatten, Lookup, Mask, Rule, Sql, Step
from calve.modes.aggregate import Aggregate
from calve.schema.columns import DEAD_LETTERS, KAFKA, field, list_of, map_of, struct
from glue_jobs.iceberg.exposure import COUNTED, OF_DEAD_LETTERS, hidden_columns, without_bounds

ITEM = struct(field("sku", "string"), field("price", "double"))
CUSTOMER = struct(field("email", "string"), field("id", "long"))
COLUMNS = struct(
    field("id", "long"),
    field("name_day", "date"),
    field("name", "string"),
    field("customer", CUSTOMER),
    field("customer_email", "string"),
    field("items", list_of(ITEM)),
    field("labels", map_of("string")),
    field("labels_a", "string"),
    field("city", "string"),
    KAFKA,
)
RECEIVED = {"_kafka.key", "_kafka.headers.element.key", "_kafka.headers.element.value"}
RULE = Rule("hash")
DATA = {
    *("id", "name_day", "name", "customer.email", "customer.id", "customer_email", "items.element.sku"),
    *("items.element.price", "labels.key", "labels.value", "labels_a", "city"),
}


def uncounted(
    *steps: Step, tags: Mapping[str, tuple[str, ...]] | None = None, **settings: object
) -> set[str]:
    table = Table("t", "t", steps=steps, **settings)  # type: ignore[arg-type]
    found = without_bounds(COLUMNS, hidden_columns(table, tags or {}, COLUMNS))
    assert set(found.values()) == {"counts"}
    return {name.removeprefix(COUNTED) for name in found}


@pytest.mark.parametrize(
    ("steps", "hidden"),
    [
        ((), set()),
        ((Filter("id > 0"), Sql("select * from source")), set()),
        ((Mask(fields={"name": RULE}),), {"name"}),
        ((Mask(fields={"customer.email": RULE}),), {"customer.email"}),
        ((Mask(fields={"customer.email": RULE}), Flatten()), {"customer.email", "customer_email"}),
        ((Mask(fields={"customer": Rule("null")}),), {"customer.email", "customer.id"}),
        ((Mask(fields={"items.sku": RULE}),), {"items.element.sku"}),
        ((Mask(fields={"labels": RULE}),), {"labels.key", "labels.value"}),
        (
            (Mask(fields={"labels": RULE}), Flatten(maps={"labels": ("a",)})),
            {"labels.key", "labels.value", "labels_a"},
        ),
        ((Lookup("cities", {"id": "id"}, {"city": "name"}),), set()),
        ((Lookup("cities", {"id": "id"}, {"city": "name"}), Mask(fields={"name": RULE})), {"name", "city"}),
        ((Mask(fields={"name": RULE}), Sql("select * from source")), DATA),
    ],
)
def test_what_is_received_or_made_of_a_masked_field_has_none(
    steps: tuple[Step, ...], hidden: set[str]
) -> None:
    assert uncounted(*steps) == RECEIVED | hidden


def test_a_tag_hides_as_a_path_does() -> None:
    tagged = {"customer.email": ("PII",), "name": ("PUBLIC",)}
    assert uncounted(Mask(tags={"PII": RULE}), tags=tagged) == RECEIVED | {"customer.email"}


def test_totals_of_a_table_that_masks_have_none() -> None:
    total = Aggregate(("id",), ())
    assert uncounted(aggregate=total) == RECEIVED
    assert uncounted(Mask(fields={"name": RULE}), aggregate=total) == RECEIVED | DATA


def test_of_dead_letters_what_was_received_has_none() -> None:
    names = {name.removeprefix(COUNTED) for name in without_bounds(DEAD_LETTERS, OF_DEAD_LETTERS)}
    assert names == {"key", "value", "headers.element.key", "headers.element.value"}
