"""Dead letters of tables that mask: sealed wherever they are written, and back in the table as any others."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from calve.config.masking_keys import Key
from calve.config.steps import Mask, Rule
from calve.errors import ConfigError
from calve.modes.upsert import Upsert
from calve.names import DEAD_LETTERS_SUFFIX
from calve.schema.columns import DEAD_LETTERS, SEALED, struct
from calve.table.summary import REDRIVE
from glue_jobs.dead_letters.records import UNDECRYPTED, decrypted, encrypted
from glue_jobs.transform.types import spark_schema
from tests.integration.requests.test_redrive import BAD, Scene
from tests.integration.support.engine import Engine, suspended, trades
from tests.integration.support.proofs import assert_proved, proof

OLD, NEW = (Key(name, n, sha256(name.encode()).digest()) for n, name in enumerate(("old", "new")))
STEPS = (Mask(fields={"side": Rule("hash")}),)
NAMES = [each["name"] for each in DEAD_LETTERS["fields"]]
HEADERS = [("a", bytearray(b"personal")), ("b", None), ("a", bytearray(b""))]


def letter(offset: int = 7, **changes: Any) -> dict[str, Any]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    place = {"cluster_id": "c", "topic_id": "i", "topic": "t", "partition": 0, "offset": offset}
    record = {"key": bytearray(b"ada@example.com"), "value": bytearray(b"\0personal"), "headers": HEADERS}
    told = {"timestamp": now, "rejected_at": now, "attempt": 1, "round": "r1"}
    return dict.fromkeys(NAMES) | place | record | told | changes


def frame(spark: SparkSession, *letters: dict[str, Any]) -> DataFrame:
    rows = [tuple(each[name] for name in NAMES) for each in letters]
    return spark.createDataFrame(rows, spark_schema(struct(*DEAD_LETTERS["fields"])))


def bytes_of(letters: DataFrame) -> list[tuple[Any, ...]]:
    found = letters.orderBy("offset").collect()
    return [
        (
            row["key"],
            row["value"],
            row["headers"] and [(each["key"], each["value"]) for each in row["headers"]],
        )
        for row in found
    ]


@pytest.mark.long
def test_what_is_sealed_is_opened_as_it_was(spark: SparkSession) -> None:
    letters = frame(
        spark,
        letter(1),
        letter(2, key=None, value=None, headers=None),
        letter(3, value=bytearray(), headers=[]),
    )
    kept = encrypted(letters, OLD).localCheckpoint()
    assert kept.columns == letters.columns
    assert [row[SEALED] for row in kept.collect()] == ["old"] * 3
    back = decrypted(kept, [OLD, NEW])
    assert bytes_of(back) == bytes_of(letters)
    assert not back.where(F.col(UNDECRYPTED)).count()
    assert bytes_of(decrypted(letters, [OLD])) == bytes_of(letters)
    assert bytes_of(decrypted(letters, [])) == bytes_of(letters)


def test_a_seal_is_aes_gcm_of_the_value_by_a_key_of_the_round_bound_to_its_place(spark: SparkSession) -> None:
    [row] = encrypted(frame(spark, letter()), OLD).collect()
    secret = hmac.digest(hmac.digest(OLD.secret, b"calve.dead-letters", "sha512")[:32], b"r1", "sha256")

    def clear(data: bytearray, part: str) -> bytes:
        return AESGCM(secret).decrypt(bytes(data[:12]), bytes(data[12:]), f"{part}/c/i/0/7".encode())

    assert clear(row["key"], "key") == b"ada@example.com"
    assert clear(row["value"], "value") == b"\0personal"
    headers = [(each["key"], each["value"]) for each in row["headers"]]
    assert clear(headers[0][1], "headers.0") == b"personal"
    assert headers[1] == ("b", None)
    assert clear(headers[2][1], "headers.2") == b""


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, [NEW]),
        ({}, []),
        ({}, [Key("old", 0, NEW.secret)]),
        ({"offset": "8L"}, [OLD]),
        ({"partition": "1"}, [OLD]),
        ({"topic_id": "'j'"}, [OLD]),
        ({"cluster_id": "'j'"}, [OLD]),
        ({"round": "'r2'"}, [OLD]),
        ({"key": "value", "value": "key"}, [OLD]),
        ({"headers": "reverse(headers)"}, [OLD]),
        ({"value": "x'00'"}, [OLD]),
    ],
)
def test_what_was_moved_changed_or_sealed_by_another_key_does_not_open(
    spark: SparkSession, changes: dict[str, str], keys: Sequence[Key]
) -> None:
    kept = encrypted(frame(spark, letter()), OLD).localCheckpoint()
    changed = kept.withColumns({name: F.expr(each) for name, each in changes.items()})
    assert decrypted(changed, keys).where(F.col(UNDECRYPTED)).count() == 1


def secret(folder: Path, *keys: Key) -> str:
    listed = [
        {
            "id": each.id,
            "from": f"2020-01-0{1 + each.since_us}T00:00:00Z",
            "key": base64.b64encode(each.secret).decode(),
        }
        for each in keys
    ]
    file = folder / f"{'-'.join(each.id for each in keys)}.json"
    file.write_text(json.dumps({"keys": listed}))
    return f"file:{file}"


def masked(scene: Scene, folder: Path, *keys: Key) -> None:
    """Drain with these keys."""
    scene.engine.drain(scene.target(steps=STEPS, masking=secret(folder, *keys)))


@pytest.mark.full
def test_verify_opens_letters_or_says_that_it_could_not(engine: Engine, tmp_path: Path) -> None:
    scene = Scene(engine)
    engine.producer.produce(scene.topic, BAD, key=b"k", partition=0, headers=[("h", b"x"), ("h", None)])
    scene.produce(bad=1)
    masked(scene, tmp_path, OLD)
    scene.produce(bad=1)
    masked(scene, tmp_path, OLD, NEW)
    both = secret(tmp_path, OLD, NEW)
    assert_proved(proof(engine, scene.topic, steps=STEPS, masking=both))
    found = proof(engine, scene.topic, steps=STEPS, masking=secret(tmp_path, NEW))
    assert found.findings == ()
    [encrypted] = [each for each in found.checks if each.name == "sealed"]
    assert (encrypted.state, encrypted.figures["dead letters"]) == ("not verifiable", 2)
    with pytest.raises(ConfigError, match="absent"):
        proof(engine, scene.topic, steps=STEPS, masking=f"file:{tmp_path}/absent")
    letters = f"lake.tests.{scene.topic}{DEAD_LETTERS_SUFFIX}"
    engine.spark.sql(f"UPDATE {letters} SET value = key, partition = partition WHERE offset = 1")
    [wrong] = proof(engine, scene.topic, steps=STEPS, masking=both).findings
    assert (wrong.check, wrong.where, wrong.columns) == ("dead letters", "partition 0 offset 1", ("value",))


def kept(scene: Scene) -> list[tuple[str | None, bytes | None]]:
    found = scene.engine.letters(scene.topic).orderBy("offset").select(SEALED, "value").collect()
    return [(row[0], None if row[1] is None else bytes(row[1])) for row in found]


@pytest.mark.full
def test_letters_are_sealed_by_the_newest_key_and_come_back_while_the_secret_has_it(
    engine: Engine, tmp_path: Path
) -> None:
    scene = Scene(engine)
    scene.produce(2, bad=1)
    masked(scene, tmp_path, OLD)
    scene.produce(1, good=1)
    masked(scene, tmp_path, OLD, NEW)
    before = kept(scene)
    assert [key for key, _ in before] == ["old", "old", "old", "new"]
    assert not any(BAD in value for _, value in before if value)
    scene.fix()
    request = scene.ask()
    masked(scene, tmp_path, NEW)
    found = scene.answer(request)
    assert (found.selected, found.redriven, found.refused) == (4, 1, {"sealed": 3})
    assert scene.open() == {0, 1, 2}
    request = scene.ask()
    masked(scene, tmp_path, OLD)
    found = scene.answer(request)
    assert (found.redriven, found.refused) == (2, {"bad_magic": 1})
    assert engine.offsets(scene.topic) == [(0, 0), (0, 1), (0, 3), (0, 4)]
    assert kept(scene) == before


@pytest.mark.full
def test_a_table_that_masks_no_more_says_that_its_letters_are_sealed(engine: Engine, tmp_path: Path) -> None:
    scene = Scene(engine)
    scene.produce(1)
    masked(scene, tmp_path, OLD)
    scene.fix()
    assert scene.redrive().refused == {"sealed": 1}
    request = scene.ask()
    engine.drain(scene.target(masking=secret(tmp_path, OLD)))
    assert scene.answer(request).redriven == 1


@pytest.mark.full
def test_letters_of_an_earlier_release_are_as_they_were_and_later_ones_sealed(
    engine: Engine, tmp_path: Path
) -> None:
    scene = Scene(engine)
    scene.produce(bad=1)
    scene.work()
    engine.spark.sql(f"ALTER TABLE lake.tests.{scene.topic}{DEAD_LETTERS_SUFFIX} DROP COLUMN {SEALED}")
    scene.produce(1)
    masked(scene, tmp_path, OLD)
    assert kept(scene)[0] == (None, BAD)
    assert kept(scene)[1][0] == "old"
    scene.fix()
    request = scene.ask()
    masked(scene, tmp_path, OLD)
    found = scene.answer(request)
    assert (found.redriven, found.refused) == (1, {"bad_magic": 1})


@pytest.mark.full
def test_a_redrive_of_sealed_letters_is_not_taken_for_rolled_back(engine: Engine, tmp_path: Path) -> None:
    scene = Scene(engine)
    scene.produce(3)
    masked(scene, tmp_path, OLD)
    scene.fix()
    request = scene.ask()
    masked(scene, tmp_path, OLD)
    assert scene.answer(request).redriven == 3
    before = engine.table(scene.topic).head
    assert before is not None
    scene.produce(bad=1)
    masked(scene, tmp_path, OLD)
    engine.rollback(scene.topic, before)
    engine.compact(scene.topic + DEAD_LETTERS_SUFFIX)
    engine.expire_history(scene.topic + DEAD_LETTERS_SUFFIX)
    masked(scene, tmp_path, OLD)
    assert scene.open() == {3}
    assert engine.offsets(scene.topic) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.full
def test_sealed_tombstones_delete_when_the_table_becomes_one_of_upserts(
    engine: Engine, tmp_path: Path
) -> None:
    topic = engine.topic(partitions=1)
    for row in trades(2):
        engine.send(topic, engine.encode(topic, row), key=str(row["id"]).encode(), partition=0)
    engine.send(topic, None, key=b"1", partition=0)
    engine.flush()
    steps = (Mask(fields={"side": Rule("hash")}, key="keep"),)
    engine.drain(engine.target(topic, steps=steps, masking=secret(tmp_path, OLD)))
    upsert = Upsert(("_kafka.key",), deletes=True)
    with suspended("mode_changed"):
        engine.drain(engine.target(topic, steps=steps, masking=secret(tmp_path, NEW), upsert=upsert))
    engine.drain(engine.target(topic, steps=steps, masking=secret(tmp_path, OLD), upsert=upsert))
    assert engine.offsets(topic) == [(0, 0)]
    assert REDRIVE not in engine.table(topic).properties
