"""Tables of records with personal data: what reaches the table, and that nothing else of it does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from calve.config.steps import Flatten, Mask, Rule
from calve.modes.upsert import Deduplicate, Upsert
from tests.integration.steps.test_steps import sale, schema
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.keyed import Users

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
def test_no_key_of_a_mode_is_hashed_by_keys_that_change(
    engine: Engine, masking: str, mode: dict[str, Any]
) -> None:
    topic = engine.topic(schema=schema())
    with suspended("key_unusable"):
        engine.drain(engine.target(topic, steps=(MASK, Flatten()), masking=masking, **mode))


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A secret whose second key hashes what is produced today."""
    file = tmp_path_factory.mktemp("masking") / "rotated.json"
    keys = {"k1": SECRET, "k2": b"another key of at least 32 bytes, too"}
    listed = [
        {"id": name, "from": f"202{n}-01-01T00:00:00Z", "key": base64.b64encode(key).decode()}
        for n, (name, key) in enumerate(keys.items())
    ]
    file.write_text(json.dumps({"keys": listed}))
    return f"file:{file}"


@pytest.mark.parametrize("made_by", ["rows", "columnar"])
def test_a_key_is_hashed_by_one_masking_key_so_that_each_record_finds_its_row(
    engine: Engine, rotated: str, made_by: Any
) -> None:
    """The rotated key would make another token of records from before 2021. A deletion has the token of its row, too."""
    users, steps = Users(engine), (Mask(fields={"side": Rule("hash")}, masking_key="k1"),)
    old_ms, settings = 1_590_000_000_000, {"steps": steps, "masking": rotated, "engine": made_by}
    value = engine.encode(users.topic, {"id": 1, "side": "BUY", "price": 1})
    for key in (b"user-1", b"user-2"):
        engine.send(users.topic, value, key=key, partition=0, at_ms=old_ms)
    engine.flush()
    target = users.target(**settings)
    engine.drain(target)
    engine.send(users.topic, None, key=b"user-1", partition=0)
    engine.send(users.topic, value, key=b"user-2", partition=0)
    engine.flush()
    engine.drain(target)
    [row] = engine.rows(users.topic).collect()
    assert (bytes(row["_kafka"]["key"]).decode(), row["side"]) == (token(b"user-2"), token("BUY"))
    assert (row["_kafka"]["partition"], row["_kafka"]["offset"]) == (0, 3)
    assert_proved(proof(engine, users.topic, steps=steps, masking=rotated))

    with suspended("mode_changed") as refused:
        engine.drain(users.target(**settings | {"steps": (replace(steps[0], masking_key="k2"),)}))
    assert "hashed by the masking key k1, and are to be hashed by the masking key k2" in str(refused.value)


@pytest.mark.parametrize("made_by", ["rows", "columnar"])
def test_a_masking_key_that_the_secret_lacks_suspends_the_table(
    engine: Engine, rotated: str, made_by: Any
) -> None:
    users, steps = Users(engine), (Mask(fields={"side": Rule("hash")}, masking_key="k3"),)
    users.put(b"user-1")
    engine.flush()
    with suspended("step_unusable") as refused:
        engine.drain(users.target(upsert=None, steps=steps, masking=rotated, engine=made_by))
    assert "the secret has no key with this id: it has k1, k2" in str(refused.value)


def test_rows_that_several_masking_keys_hashed_are_not_folded(engine: Engine, rotated: str) -> None:
    """A table of all records becomes one of upserts only if each key has one token in it."""
    users, mask = Users(engine, partitions=1), Mask(fields={"side": Rule("hash")})
    users.put(b"user-1")
    users.put(b"user-1")
    engine.flush()
    for masking_key, code in ((None, None), ("k1", "mode_changed"), ("k2", None)):
        steps = (replace(mask, masking_key=masking_key),)
        target = users.target(steps=steps, masking=rotated, **{} if masking_key else {"upsert": None})
        with suspended(code) if code else nullcontext():
            engine.drain(target)
    assert engine.offsets(users.topic) == [(0, 1)]


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
