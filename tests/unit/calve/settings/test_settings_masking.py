"""How `mask` and `masking` are written in calve.yaml."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from pydantic import ValidationError

from calve.config.job import Job, Kafka, Lake, Table
from calve.config.steps import Mask, Rule
from calve.settings.entries.sources import RegistrySection
from calve.settings.entries.steps import MaskingSection, mask_step
from calve.settings.model import LakeSection
from calve.settings.problems import Invalid, Problem
from calve.stored import from_plain

HASH, KEEP, NULL = Rule("hash"), Rule("keep"), Rule("null")


def problems(raw: Any) -> list[Problem]:
    with pytest.raises(Invalid) as caught:
        mask_step(raw)
    return caught.value.problems


def test_the_short_form_names_columns() -> None:
    raw = {"customer.email": "hash", "phone": {"partial": 4}, "mail": {"partial": "domain"}}
    more = {"birth": {"generalise": "year"}, "amount": {"generalise": 100}, "card": "drop", "notes": None}
    assert mask_step(raw | more) == Mask(
        {
            "customer.email": HASH,
            "phone": Rule("partial", 4),
            "mail": Rule("partial", "domain"),
            "birth": Rule("generalise", "year"),
            "amount": Rule("generalise", 100),
            "card": Rule("drop"),
            "notes": NULL,
        }
    )


def test_the_long_form_says_the_rest() -> None:
    fields = {"key": "hash", "email": "keep", "notes": "null"}
    raw = {"fields": fields, "tags": {"PII": "hash", "Public data": "keep"}, "key": "keep", "headers": None}
    assert mask_step(raw) == Mask(
        {"key": HASH, "email": KEEP, "notes": NULL}, {"PII": HASH, "Public data": KEEP}, "keep", "null"
    )


def test_one_masking_key_may_make_all_tokens() -> None:
    assert mask_step({"fields": {"a": "hash"}, "masking_key": "2026a"}) == Mask(
        {"a": HASH}, masking_key="2026a"
    )
    assert mask_step({"masking_key": "hash"}) == Mask({"masking_key": HASH}), "a column, in the short form"


def test_the_key_is_hashed_and_headers_are_emptied_if_nothing_is_said() -> None:
    made = mask_step({"tags": {"PII": "drop"}})
    assert (made.key, made.headers) == ("hash", "null")
    assert mask_step({"fields": {}, "headers": "hash"}) == Mask(headers="hash")


def test_a_field_may_be_kept_as_it_is_which_says_that_somebody_has_decided() -> None:
    assert mask_step({"email": "keep", "phone": "hash"}) == Mask({"email": KEEP, "phone": HASH})


def test_a_step_that_travels_as_plain_values_comes_back_as_it_was() -> None:
    made = mask_step({"fields": {"a": {"partial": 2}}, "tags": {"PII": None}, "key": "null"})
    assert from_plain(Mask, asdict(made)) == made


RULE = "use drop, null, hash, {partial: 4}, {partial: domain}, {generalise: year} or {generalise: 100}"
FIELDS = "write it as {customer.email: hash, customer.phone: {partial: 4}, card: drop}"
STAYS = "use domain, or a number of characters from 1 to 100"
SPAN = "use year, month, or the width of a band, at least 2, such as 100"
NO_PATH = '"a-b" is not a field path: "a-b" must be letters, digits and _ and start with a letter or _'
RESERVED = '"_kafka.key" is reserved: _kafka holds topic, partition, offset and the other facts of the record'
KEY_ID = 'name the id of a key in the secret of `masking`, as "2026a"'
PLACES = "name columns under `fields`; also one that is called fields, tags, key or headers"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("hash", Problem((), "must be a mapping", FIELDS)),
        ({}, Problem((), "must be a mapping", FIELDS)),
        ({"fields": ["a"]}, Problem(("fields",), "must be a mapping", FIELDS)),
        ({"a": "hsah"}, Problem(("a",), '"hsah" is not a rule', 'Did you mean "hash"?')),
        ({"a": "generalize"}, Problem(("a",), '"generalize" is not a rule', 'Did you mean "generalise"?')),
        ({"a": "xyz"}, Problem(("a",), '"xyz" is not a rule', RULE)),
        ({"a": "partial"}, Problem(("a",), "is not a rule", RULE)),
        ({"a": 4}, Problem(("a",), "is not a rule", RULE)),
        ({"a": {"partial": 4, "hash": None}}, Problem(("a",), "is not a rule", RULE)),
        ({"a": {"partial": 0}}, Problem(("a",), '"0" is nothing that stays', STAYS)),
        ({"a": {"partial": True}}, Problem(("a",), '"True" is nothing that stays', STAYS)),
        ({"a": {"generalise": 1}}, Problem(("a",), '"1" is not a span', SPAN)),
        ({"a": {"generalise": [1]}}, Problem(("a",), '"[1]" is not a span', SPAN)),
        ({"a-b": "hash"}, Problem(("a-b",), NO_PATH)),
        ({"_kafka.key": "hash"}, Problem(("_kafka.key",), RESERVED)),
        ({"tags": {" ": "hash"}}, Problem(("tags", " "), "is not a tag", "write it as the schema has it, such as PII")),
        ({"fields": {}, "key": "drop"}, Problem(("key",), '"drop" cannot be used', "use hash, null or keep")),
        ({"fields": {}, "masking_key": 2026}, Problem(("masking_key",), '"2026" is not the id of a masking key', KEY_ID)),
        ({"key": "hash", "fields": {}, "email": "hash"}, Problem(("email",), "is not a known key beside fields or key", PLACES)),
        ({"key": "hash"}, Problem((), "names no columns", f"{PLACES}; where there are none, add `fields: {{}}`")),
        ({"a": "drop", "a.b": "hash"}, Problem(("a.b",), 'is in "a", which has a rule', "remove one of the two")),
        ({"ab": "drop", "Ab": "hash"}, Problem(("Ab",), "differs only by case from another one", "remove one of the two")),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_with_its_cure(raw: Any, problem: Problem) -> None:
    assert problems(raw) == [problem]


def test_every_problem_is_listed() -> None:
    raw = {
        "fields": {"a": "x1", "b": {"partial": -1}},
        "tags": {"PII": "x2"},
        "key": 1,
        "headers": [],
        "c": "drop",
    }
    places = [("c",), ("fields", "a"), ("fields", "b"), ("tags", "PII"), ("key",), ("headers",)]
    assert [each.path for each in problems(raw)] == places


def test_a_kept_struct_may_have_masked_fields() -> None:
    fields = {"a": "keep", "a.b": "hash"}
    assert mask_step({"fields": fields, "tags": {"PII": "drop"}}).fields == {"a": KEEP, "a.b": HASH}


def test_the_keys_are_named_by_a_reference_that_an_error_does_not_repeat() -> None:
    assert MaskingSection(secret="aws:masking").secret == "aws:masking"
    with pytest.raises(ValidationError) as caught:
        MaskingSection(secret="hunter2")
    assert "is not a reference to a secret" in str(caught.value)


def test_a_secret_of_aws_is_one_secret() -> None:
    arn = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:"
    for name in (
        "a",
        "team/kafka_1+=.@-x",
        f"{arn}team/kafka-AbCdEf",
        f"{arn.replace('aws:', 'aws-cn:', 1)}k",
    ):
        assert MaskingSection(secret=f"aws:{name}").secret == f"aws:{name}"
    for name in (
        "*",
        "kafka*",
        "kafk?",
        "a b",
        f"{arn}*",
        f"{arn}kafka-??????",
        "arn:aws:s3:::lake",
        "${aws:username}",
    ):
        with pytest.raises(ValidationError, match="is not a secret of AWS Secrets Manager"):
            MaskingSection(secret=f"aws:{name}")


@pytest.mark.parametrize("name", ["*", "arn:aws:kms:*:111122223333:key/a", "compan?"])
def test_a_name_that_policies_take_over_names_exactly_one(name: str) -> None:
    with pytest.raises(ValidationError, match="has a wildcard"):
        LakeSection(kms_key=name)
    with pytest.raises(ValidationError, match="has a wildcard"):
        RegistrySection(type="glue", name=name)


def test_the_order_of_tags_reaches_the_job() -> None:
    mask = mask_step({"tags": {"SECRET": "drop", "PII": "hash"}})
    job = Job("n", "main", Kafka("b:1"), None, Lake("d", "s3://b"), (Table("t", "t", steps=(mask,)),))
    [table] = Job.from_json(job.to_json()).tables
    [found] = table.steps
    assert isinstance(found, Mask)
    assert list(found.tags) == ["SECRET", "PII"]
