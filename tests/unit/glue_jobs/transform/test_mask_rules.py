"""Which rule counts for which field: paths before tags, the first tag before others, and never a guess."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from calve.config.steps import Mask, Rule
from calve.errors import Suspended
from glue_jobs.transform.mask import paths, rules

HASH, DROP, KEEP = Rule("hash"), Rule("drop"), Rule("keep")
ROLE = StructType([StructField("name", StringType())])
CUSTOMER = StructType(
    [StructField("email", StringType()), StructField("roles", MapType(StringType(), ArrayType(ROLE)))]
)
COLUMNS = StructType([StructField("id", StringType()), StructField("customer", CUSTOMER)])


def test_paths_go_through_lists_and_maps() -> None:
    found = ["id", "customer", "customer.email", "customer.roles", "customer.roles.name"]
    assert list(paths(COLUMNS)) == found


def test_what_is_said_of_a_field_comes_before_what_is_said_of_its_tag() -> None:
    step = Mask({"customer.email": KEEP, "customer.roles.name": DROP}, {"PII": HASH})
    tags = {"id": ("PII",), "customer.email": ("PII",), "customer.roles.name": ("PII",)}
    assert rules(step, tags, COLUMNS) == {("id",): HASH, ("customer", "roles", "name"): DROP}


def test_of_several_tags_the_first_of_the_step_counts() -> None:
    step = Mask(tags={"PUBLIC": KEEP, "SECRET": DROP, "PII": HASH})
    tags = {"id": ("PII", "SECRET"), "customer.email": ("PII", "PUBLIC"), "customer": ("OTHER",)}
    assert rules(step, tags, COLUMNS) == {("id",): DROP}


def test_a_tagged_field_that_is_gone_is_named_as_it_may_have_another_name_now() -> None:
    step = Mask({"phone": KEEP, "zzz": KEEP, "Id": DROP}, {"PII": HASH, "PUBLIC": KEEP})
    tags = {"customer_email": ("PII",), "phone": ("PII",), "customer_name": ("PUBLIC",)}
    with pytest.raises(Suspended) as caught:
        rules(step, tags, COLUMNS)
    assert caught.value.message == (
        "no column phone; no column zzz; no column Id; did you mean id?; "
        "customer_email, which the schema tags, is no column any more; mask it before other steps change it"
    )
