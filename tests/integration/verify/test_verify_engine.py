"""`verify` against tables that the engine itself wrote: every type, and what others may do to such a table."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.integration.support.engine import DATABASE, Engine
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.producing import Raw, produce, transaction

INNER = {
    "type": "record",
    "name": "Inner",
    "namespace": "deep",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    ],
}
EVERY_TYPE = {
    "type": "record",
    "name": "Every",
    "namespace": "top",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "text", "type": ["string", "null"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
        {"name": "pair", "type": {"type": "fixed", "name": "Pair", "size": 2}},
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "wall", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "inner", "type": ["null", INNER]},
        {"name": "again", "type": "deep.Inner"},
        {"name": "inners", "type": {"type": "array", "items": "deep.Inner"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
    ],
}


def row(n: int) -> dict[str, Any]:
    inner = {"day": date(1969, 12, 1) + timedelta(days=n), "tags": ["a", None, "ž"][: n % 4]}
    return {
        "id": n - 5,
        "flag": n % 2 == 0,
        "small": -n,
        "single": [0.1, -0.0, float("nan"), float("inf")][n % 4],
        "double": [0.1, -0.0, float("nan"), 1e300][n % 4],
        "raw": None if n % 3 == 0 else b"\0\xff" * n,
        "text": None if n % 5 == 0 else "ąę😀" * n,
        "colour": "RED" if n % 2 else "GREEN",
        "pair": bytes([n, 255 - n]),
        "money": Decimal("-1234567890123456789012345678901234.5678") + n,
        "millis": datetime(1960, 1, 1, tzinfo=UTC) + timedelta(milliseconds=n),
        "micros": None if n % 2 else datetime(9999, 12, 31, 23, 59, 59, n, tzinfo=UTC),
        "wall": datetime(2020, 2, 29, 1, 2, 3, n),  # noqa: DTZ001 a local timestamp has no zone
        "inner": None if n % 2 else inner,
        "again": inner,
        "inners": [inner] * (n % 3),
        "counts": {f"k{k}": None if k else n for k in range(n % 3)},
    }


def test_every_type_comes_out_as_it_went_in(engine: Engine) -> None:
    topic = engine.topic(schema=json.dumps(EVERY_TYPE))
    good = [engine.encode(topic, row(n)) for n in range(20)]
    headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None), ("", b"")]
    records = [
        Raw(value, [None, b"", b"\0\xff"][n % 3], n % 2, headers[: n % 4], 1_700_000_000_123 + n)
        for n, value in enumerate(
            [*good, None, b"", b"\0\0", b"\x01" + good[0], good[1][:-1], good[2] + b"\0"]
        )
    ]
    engine.configure(topic, **{"retention.ms": "-1"})
    produce(engine.stack.bootstrap_servers, topic, records)
    engine.drain(engine.target(topic))
    found = proof(engine, topic)
    assert_proved(found)
    figures = {check.name: check.figures for check in found.checks}
    assert figures["coverage"] == {"offsets": 26, "records": 26, "rows": 20, "dead_letters": 6, "gaps": 0}


def test_a_row_deleted_by_a_position_delete_is_found(engine: Engine) -> None:
    topic = engine.topic()
    engine.produce(topic, 100)
    engine.drain(engine.target(topic))
    engine.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')", topic)
    engine.sql("DELETE FROM {t} WHERE id = 7", topic)
    found = proof(engine, topic)
    [finding] = [each for each in found.findings if each.check == "coverage"]
    assert "neither the table nor the dead letters" in finding.message


def test_a_value_changed_by_sql_is_found_with_its_column(engine: Engine) -> None:
    topic = engine.topic()
    engine.produce(topic, 100)
    engine.drain(engine.target(topic))
    engine.sql("UPDATE {t} SET price = price + 1 WHERE id = 7", topic)
    [finding] = proof(engine, topic).findings
    assert finding.check == "contents"
    assert finding.columns == ("price",)
    assert len(finding.files) == 1


def test_compaction_by_others_changes_nothing(engine: Engine) -> None:
    topic = engine.topic()
    for n in range(3):
        engine.produce(topic, 50 + n)
        engine.drain(engine.target(topic))
    engine.spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{DATABASE}.{topic}', options => map('min-input-files', '2'))"
    )
    assert_proved(proof(engine, topic))


def test_aborted_transactions_and_markers_are_gaps(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    servers = engine.stack.bootstrap_servers
    for outcome in ("commit", "abort", "commit"):
        values = [engine.encode(topic, {"id": n, "side": outcome, "price": n}) for n in range(10)]
        transaction(servers, topic, [Raw(value) for value in values], outcome=outcome)
    engine.drain(engine.target(topic))
    found = proof(engine, topic)
    assert_proved(found)
    coverage = next(check.figures for check in found.checks if check.name == "coverage")
    assert (coverage["offsets"], coverage["rows"], coverage["gaps"]) == (33, 20, 13)


def test_of_a_topic_that_was_created_again_the_new_one_is_verified(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 30)
    engine.drain(engine.target(topic))
    engine.recreate(topic)
    engine.produce(topic, 40)
    engine.drain(engine.target(topic, on_data_loss="continue"))
    found = proof(engine, topic)
    assert found.ok
    [open_] = [check for check in found.checks if check.state == "not verifiable"]
    assert (open_.name, open_.figures["rows"]) == ("earlier topic", 30)
    assert [(each.to, each.rows) for each in found.digests] == [(40, 40)]
