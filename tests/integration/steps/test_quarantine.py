"""Tables whose new fields stay out until somebody has decided on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.config.steps import Flatten, Mask, Rule, Step
from calve.decoding.field_quarantine import fields_in
from glue_jobs.table.opening import Opener
from tests.integration.steps.test_masked_tables import masking, token
from tests.integration.support.engine import Engine
from tests.integration.support.events import assert_as_documented
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records import json_topics, protobuf_topics

__all__ = ["masking"]

KEEP, HASH = Rule("keep"), Rule("hash")


def optional(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, **more}


def order(
    *fields: dict[str, Any], inside: tuple[dict[str, Any], ...] = (), also: tuple[str, ...] = ()
) -> str:
    """Orders with lines, a buyer, and a reference that is of several types; the price has other names and types in time."""
    line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, *inside]}
    buyer = {"type": "record", "name": "Buyer", "fields": [{"name": "id", "type": "long"}, *inside]}
    own = [
        {"name": "id", "type": "long"},
        {"name": "lines", "type": {"type": "array", "items": line}},
        {"name": "buyer", "type": buyer},
        {"name": "ref", "type": ["string", "long", *also]},
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": [*own, *fields]})


def record(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "lines": [{"sku": "s"}], "buyer": {"id": 7}, "ref": "r", **more}


def new_record(number: int, **more: Any) -> dict[str, Any]:
    """A record of the second version, with all that is new in it."""
    person = {"name": "Ada", "phone": "555"}
    inside = {"lines": [{"sku": "s", "email": "line@x.org"}], "buyer": {"id": 7, "email": "ada@x.org"}}
    return record(number, **inside, vat="LT1", contact=person, amount=2**40, **more)


PERSON = {"type": "record", "name": "Person", "fields": [optional("name"), optional("phone")]}
FIRST = order({"name": "price", "type": "int"})
SECOND = order(
    {"name": "amount", "type": "long", "aliases": ["price"]},
    optional("vat", **{"confluent:tags": ["PII"]}),
    optional("contact", PERSON),
    inside=(optional("email"),),
    also=("boolean",),
)


def target(engine: Engine, topic: str, masking: str, *steps: Step, **rules: Rule) -> Opener:
    """A job of its own; rules of fields by their path with `__` for the dots."""
    fields = {name.replace("__", "."): rule for name, rule in rules.items()}
    mask = Mask(fields, {"PII": HASH}, key="keep")
    return engine.target(topic, steps=(*steps, mask), masking=masking, quarantine_new_fields=True)


def rows(engine: Engine, topic: str) -> list[dict[str, Any]]:
    found = [json.loads(row) for row in engine.rows(topic).drop("_kafka").toJSON().collect()]
    return sorted(found, key=lambda row: int(row["id"]))


@pytest.mark.full
def test_what_a_version_adds_stays_out_at_every_depth_until_it_is_decided_on(
    engine: Engine, masking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = engine.topic(schema=FIRST, partitions=1)
    engine.produce(topic, [record(1, price=5)])
    engine.drain(first := target(engine, topic, masking))
    engine.register(topic, SECOND)
    engine.produce(topic, [new_record(2), new_record(3) | {"ref": True}, new_record(4) | {"ref": 9}])
    capsys.readouterr()
    engine.drain(first)
    engine.drain(target(engine, topic, masking))
    assert_proved(proof(engine, topic, steps=(Mask({}, {"PII": HASH}, key="keep"),), masking=masking))
    told = [each for each in map(json.loads, capsys.readouterr().out.splitlines()) if "field" in each]
    assert_as_documented(told)
    out = ["buyer.email", "contact.name", "contact.phone", "lines.email", "ref.boolean", "vat"]
    assert [each["field"] for each in told] == [*out, *out]  # once for each process
    assert set(engine.rows(topic).columns) == {"id", "lines", "buyer", "ref", "price", "amount", "_kafka"}
    same = {"lines": [{"sku": "s"}], "buyer": {"id": 7}}
    assert rows(engine, topic) == [
        {"id": 1, **same, "ref": {"string": "r"}, "price": 5},
        {"id": 2, **same, "ref": {"string": "r"}, "amount": 2**40},
        {"id": 3, **same, "ref": {}, "amount": 2**40},
        {"id": 4, **same, "ref": {"long": 9}, "amount": 2**40},
    ]

    decided = {"buyer__email": KEEP, "contact": KEEP, "vat": HASH}
    engine.produce(topic, [new_record(5)])
    engine.drain(target(engine, topic, masking, **decided))
    five = {"id": 5, "lines": [{"sku": "s"}], "ref": {"string": "r"}, "amount": 2**40, "vat": token("LT1")}
    five |= {"buyer": {"id": 7, "email": "ada@x.org"}, "contact": {"name": "Ada", "phone": "555"}}
    assert rows(engine, topic)[-1] == five
    assert [row.get("vat") for row in rows(engine, topic)[:-1]] == [None] * 4

    engine.produce(topic, [new_record(6)])
    engine.drain(target(engine, topic, masking))  # what was let in stays in; its tag hashes it still
    assert rows(engine, topic)[-1] == five | {"id": 6}
    assert "lines.email" not in (fields_in(engine.table(topic).properties) or ())
    found = proof(engine, topic, steps=(Mask({}, {"PII": HASH}, key="keep"),), masking=masking)
    assert found.findings == ()
    # The round in between was made by other steps; those before it can be told no more, as each round is proved or none before.
    [unproved] = [each for each in found.checks if each.state == "not verifiable"]
    assert (unproved.name, unproved.figures["offsets"]) == ("earlier schema", 5)


@pytest.mark.full
def test_a_table_without_the_option_takes_everything_and_the_option_begins_when_it_is_switched_on(
    engine: Engine, masking: str
) -> None:
    topic = engine.topic(schema=FIRST, partitions=1)
    steps, options = (Mask(key="keep"),), {"masking": masking}
    engine.produce(topic, [record(1, price=5)])
    engine.drain(engine.target(topic, steps=steps, **options))
    engine.register(topic, SECOND)
    engine.produce(topic, [new_record(2)])
    engine.drain(engine.target(topic, steps=steps, **options))
    assert rows(engine, topic)[-1]["vat"] == "LT1"
    assert fields_in(engine.table(topic).properties) is None
    third = json.loads(SECOND)
    third["fields"].append(optional("iban"))
    engine.drain(target(engine, topic, masking))
    engine.register(topic, json.dumps(third))
    engine.produce(topic, [new_record(3, iban="LT12")])
    engine.drain(target(engine, topic, masking))
    assert rows(engine, topic)[-1]["contact"] == {"name": "Ada", "phone": "555"}
    assert "iban" not in engine.rows(topic).columns
    engine.produce(topic, [new_record(4, iban="LT12")])
    engine.drain(engine.target(topic, steps=steps, **options))
    assert rows(engine, topic)[-1]["iban"] == "LT12"
    assert fields_in(engine.table(topic).properties) is None


@pytest.mark.long
def test_fields_of_json_schemas_stay_out_and_are_decided_on_behind_a_flatten(
    engine: Engine, masking: str
) -> None:
    text = {"type": "string"}

    def closed(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "additionalProperties": False}

    topic = json_topics.json_topic(engine, closed(id={"type": "integer"}, buyer=closed(city=text)))
    engine.drain(target(engine, topic, masking, Flatten()))
    more = closed(id={"type": "integer"}, buyer=closed(city=text, email=text), vat=text)
    second = json_topics.register(engine, topic, more)
    value = {"id": 1, "buyer": {"city": "Kaunas", "email": "ada@x.org"}, "vat": "LT1"}
    json_topics.send(engine, topic, second, value)
    engine.drain(target(engine, topic, masking, Flatten()))
    json_topics.send(engine, topic, second, value | {"id": 2})
    engine.drain(target(engine, topic, masking, Flatten(), buyer_email=HASH))
    one = {"id": 1, "buyer_city": "Kaunas"}
    assert rows(engine, topic) == [one, one | {"id": 2, "buyer_email": token("ada@x.org")}]


def test_a_field_of_a_protobuf_oneof_that_stays_out_takes_the_place_of_another(
    engine: Engine, masking: str
) -> None:
    def schema(member: str = "", inside: str = "") -> str:
        fields = f"int64 id = 1; Inner inner = 2; oneof how {{ string card = 3; {member} }}"
        inner = f"message Inner {{ int32 n = 1; {inside} }}"
        return f'syntax = "proto3"; message Order {{ {fields} {inner} }}'

    topic = protobuf_topics.protobuf_topic(engine, schema())
    engine.drain(target(engine, topic, masking))
    second = protobuf_topics.register(engine, topic, schema("string iban = 4;", "string email = 2;"))
    inner = b"\x12\x05\x08\x07\x12\x01e"
    for payload in (b"\x08\x01" + inner + b"\x1a\x01c", b"\x08\x02" + inner + b"\x1a\x01c\x22\x01i"):
        protobuf_topics.send(engine, topic, second, payload)
    engine.flush()
    engine.drain(target(engine, topic, masking))
    assert rows(engine, topic) == [
        {"id": 1, "inner": {"n": 7}, "how": {"card": "c"}},
        {"id": 2, "inner": {"n": 7}},
    ]
