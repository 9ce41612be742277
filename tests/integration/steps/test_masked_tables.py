"""Tables of records with personal data: what reaches the table, and that nothing else of it does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from calve.config.steps import Flatten, Mask, Rule
from calve.modes.deduplicate import Deduplicate
from calve.modes.upsert import Upsert
from tests.integration.steps.test_steps import sale, schema
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.proofs import assert_proved, proof

SECRET = b"a key of at least 32 bytes, for tests"
MASK = Mask(fields={"customer.email": Rule("hash"), "items.sku": Rule("drop")})


@pytest.fixture(scope="module")
def masking(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("masking") / "keys.json"
    key = base64.b64encode(SECRET).decode()
    file.write_text(json.dumps({"keys": [{"id": "k1", "from": "2020-01-01T00:00:00Z", "key": key}]}))
    return f"file:{file}"


def token(value: str | bytes) -> str:
    data = value.encode() if isinstance(value, str) else value
    return "k1:" + hmac.new(SECRET, data, hashlib.sha256).hexdigest()


def test_fields_key_and_headers_are_masked(engine: Engine, masking: str) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    value = engine.encode(topic, sale(1, "a"))
    engine.producer.produce(topic, value, key=b"1@example.com", headers={"user": b"1@example.com"})
    engine.flush()
    engine.drain(engine.target(topic, steps=(MASK, Flatten()), masking=masking))
    [row] = engine.rows(topic).collect()
    assert row["customer_email"] == token("1@example.com")
    assert row["items"] == [(0.0,)]
    assert bytes(row["_kafka"]["key"]).decode() == token(b"1@example.com")
    assert [(each["key"], each["value"]) for each in row["_kafka"]["headers"]] == [("user", None)]


def test_a_tag_that_a_later_version_gives_masks_from_then_on(engine: Engine, masking: str) -> None:
    note: dict[str, Any] = {"name": "note", "type": ["null", "string"], "default": None}
    topic = engine.topic(schema=schema(note), partitions=1)
    target = engine.target(topic, steps=(Mask(tags={"PII": Rule("hash")}),), masking=masking)
    engine.produce(topic, [sale(1) | {"note": "one"}])
    engine.drain(target)
    engine.register(topic, schema(note | {"confluent:tags": ["PII"]}))
    engine.produce(topic, [sale(2) | {"note": "two"}])
    engine.drain(target)
    assert [row["note"] for row in engine.rows(topic).orderBy("id").collect()] == ["one", token("two")]


@pytest.mark.parametrize(
    "mode",
    [
        {"upsert": Upsert(("_kafka.key",), deletes=True)},
        {"deduplicate": Deduplicate(("customer_email",))},
    ],
)
def test_no_key_of_a_mode_is_hashed(engine: Engine, masking: str, mode: dict[str, Any]) -> None:
    topic = engine.topic(schema=schema())
    with suspended("key_unusable"):
        engine.drain(engine.target(topic, steps=(MASK, Flatten()), masking=masking, **mode))


def test_verify_masks_by_itself(engine: Engine, masking: str) -> None:
    topic = engine.topic(schema=schema(), partitions=2)
    every = {
        "customer.email": Rule("partial", "domain"),
        "customer.id": Rule("generalise", 10),
        "items.sku": Rule("hash"),
        "items.price": Rule("null"),
    }
    steps = (Mask(fields=every, headers="hash"), Flatten(explode="items"))
    for number in range(40):
        value, key = engine.encode(topic, sale(number, "a", f"s{number}")), b"k%d" % number
        engine.producer.produce(topic, value, key=key, headers={"h": key, "none": None})
    engine.produce(topic, [sale(50)])
    engine.send(topic, b"\x01no magic byte", key=b"k99")
    engine.flush()
    engine.drain(engine.target(topic, steps=steps, masking=masking))
    assert_proved(proof(engine, topic, steps=steps, masking=masking))
    engine.sql("UPDATE {t} SET items_sku = 'a' WHERE id = 7 AND items_sku IS NOT NULL", topic)
    assert not proof(engine, topic, steps=steps, masking=masking).ok
