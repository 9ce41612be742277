"""Tables of JSON without a schema: their records make the columns."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from calve.config.job import Source
from calve.errors import Retryable
from calve.names import TableName
from calve.requests.redrive import Request
from calve.schema.inference import Infer
from calve.table.summary import LEARNT, REDRIVE
from cli.lake import open_catalog
from cli.progress import LineProgress
from cli.verify.topic import Sources
from cli.verify.verification import verify
from tests.integration.support.crashing import OF_INFERENCE, Died, dying
from tests.integration.support.engine import DATABASE, Engine, at, suspended

SOURCE = Source(format="json", prefix="none", rest="rest", infer=Infer())


def new_topic(engine: Engine, *, partitions: int = 1) -> str:
    topic = f"t{uuid.uuid4().hex[:12]}"
    engine.create(topic, partitions=partitions)
    return topic


def send(engine: Engine, topic: str, values: Sequence[Any], partition: int = 0) -> None:
    for each in values:
        engine.send(
            topic, each if isinstance(each, bytes) else json.dumps(each).encode(), partition=partition
        )
    engine.flush()


def rows(engine: Engine, table: str) -> list[dict[str, Any]]:
    """The rows by partition and offset, without `_kafka`."""
    found = engine.rows(table).orderBy("_kafka.partition", "_kafka.offset").drop("_kafka").collect()
    return [each.asDict(recursive=True) for each in found]


def given(row: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that are null, at any depth."""
    found = {name: given(each) if isinstance(each, dict) else each for name, each in row.items()}
    return {name: each for name, each in found.items() if each is not None}


def proved(engine: Engine, topic: str, table: str | None = None, source: Source = SOURCE) -> None:
    settings = engine.job()
    catalog = open_catalog(settings.lake)
    sources = Sources(catalog, settings.kafka, settings.registry, settings.lake.region, source)
    found = verify(TableName(DATABASE, table or topic), sources, LineProgress(lambda _: None))
    assert found.findings == (), found.findings
    assert found.ok


def test_records_make_the_columns_and_the_rest_has_all_that_does_not_fit(engine: Engine) -> None:
    topic = new_topic(engine)
    send(
        engine,
        topic,
        [
            {"id": 1, "price": 10.0, "at": {"city": "Ulm", "tags": [1, {"x": 2}]}, "none": None},
            {"id": "two", "price": 3, "at": {"city": "Bonn"}},
            {"id": 3, "price": 2.5, "at": {"city": "Bonn", "zip": "53111"}, "ok": True},
            {"id": 4, "at": "Ulm", "big": 2**64},
            b"no JSON",
            {"id": 5.5, "big": [1.0], "Id": 6, "odd name": 1},
            [1, 2],
            {"at": {"city": {"name": "Ulm"}}, "_kafka": 1, "rest": {"mine": None}},
        ],
    )
    (outcome,) = engine.drain(engine.target(topic, value=SOURCE))
    assert outcome.ledger.rejected == {"malformed": 2}
    at_ulm = {"city": "Ulm", "tags": '[1,{"x":2}]'}
    assert [given(each) for each in rows(engine, topic)] == [
        {"id": 1, "price": 10.0, "at": at_ulm},
        {"price": 3.0, "at": {"city": "Bonn"}, "rest": '{"id":"two"}'},
        {"id": 3, "price": 2.5, "at": {"city": "Bonn", "zip": "53111"}, "ok": True},
        {"id": 4, "rest": '{"at":"Ulm"}', "big": "18446744073709551616"},
        {"big": "[1.0]", "rest": '{"Id":6,"id":5.5,"odd name":1}'},
        {"rest": '{"_kafka":1,"at":{"city":{"name":"Ulm"}},"rest":{"mine":null}}'},
    ]
    proved(engine, topic)


def random_value(chosen: random.Random, depth: int = 0) -> Any:
    kind = chosen.choice(["null", "whole", "real", "text", "flag", "list", "object", "object"])
    match kind:
        case "null":
            return None
        case "whole":
            return chosen.choice([0, 7, -3, 2**40, 2**63, 10**30])
        case "real":
            return chosen.choice([1.0, 2.5, -0.0, 1e300, 1e-7, 123456.789])
        case "text":
            return chosen.choice(["", "x", 'a "quoted" one', '\\"', "umläut", '{"a":1}'])
        case "flag":
            return chosen.random() < 0.5
        case "list":
            return [random_value(chosen, depth + 1) for _ in range(chosen.randrange(3))] if depth < 3 else []
    return random_object(chosen, depth + 1) if depth < 4 else {}


def random_object(chosen: random.Random, depth: int = 0) -> dict[str, Any]:
    names = ["a", "b", "c", "A", "d e", "rest", "_kafka", "ü"]
    return {name: random_value(chosen, depth) for name in chosen.sample(names, chosen.randrange(len(names)))}


@pytest.mark.parametrize("engine_choice", ["rows", "columnar"])
def test_any_batches_make_the_same_table(engine: Engine, engine_choice: Any) -> None:
    chosen = random.Random(engine_choice)
    records = [random_object(chosen) for _ in range(60)]
    topic = new_topic(engine)
    source = Source(format="json", prefix="none", rest="rest", infer=Infer(columns=12, depth=3))

    def table(name: str) -> Any:
        return engine.target(topic, table=name, value=source, engine=engine_choice)

    in_parts, at_once = f"{topic}_p", f"{topic}_a"
    target = table(in_parts)
    begin = 0
    while begin < len(records):
        end = begin + chosen.randrange(1, 15)
        send(engine, topic, records[begin:end])
        engine.drain(target if chosen.random() < 0.5 else table(in_parts))
        begin = end
    engine.drain(table(at_once))
    parts, whole = rows(engine, in_parts), rows(engine, at_once)
    assert parts == whole
    assert len(whole) == len(records)
    assert engine.table(in_parts).properties[LEARNT] == engine.table(at_once).properties[LEARNT]
    proved(engine, topic, in_parts, source)
    proved(engine, topic, at_once, source)


def test_partitions_that_agree_about_types_make_the_same_rows_in_any_order(engine: Engine) -> None:
    topic = new_topic(engine, partitions=3)
    first, second = f"{topic}_1", f"{topic}_2"
    for partition in (2, 0, 1):
        send(
            engine,
            topic,
            [{f"p{partition}": n, "x": "y", "deep": {f"q{partition}": n}} for n in range(5)],
            partition,
        )
        engine.drain(engine.target(topic, table=first, value=SOURCE))
    engine.drain(engine.target(topic, table=second, value=SOURCE))
    assert [*map(given, rows(engine, first))] == [*map(given, rows(engine, second))]


def test_the_budget_is_used_in_order_and_then_never_again(engine: Engine) -> None:
    topic = new_topic(engine)
    source = Source(
        format="json", prefix="none", rest="rest", infer=Infer(columns=3, depth=1, types={"n": "double"})
    )
    send(engine, topic, [{"n": 1, "b": {"x": 1}, "c": 1, "d": 1}, {"d": 2, "e": 3, "n": "x"}])
    engine.drain(engine.target(topic, value=source))
    send(engine, topic, [{"f": 1, "b": []}])
    engine.drain(engine.target(topic, value=source))
    assert [given(each) for each in rows(engine, topic)] == [
        {"n": 1.0, "b": '{"x":1}', "c": 1, "rest": '{"d":1}'},
        {"rest": '{"d":2,"e":3,"n":"x"}'},
        {"b": "[]", "rest": '{"f":1}'},
    ]
    proved(engine, topic, source=source)


def test_a_raised_budget_makes_columns_of_later_records_and_verify_knows_both(engine: Engine) -> None:
    topic = new_topic(engine)
    small, large = (replace(SOURCE, infer=Infer(columns=each)) for each in (1, 9))
    send(engine, topic, [{"a": 1, "b": 1}])
    engine.drain(engine.target(topic, value=small))
    send(engine, topic, [{"a": 2, "b": 2}, {"b": "x"}])
    engine.drain(engine.target(topic, value=large))
    assert [given(each) for each in rows(engine, topic)] == [
        {"a": 1, "rest": '{"b":1}'},
        {"a": 2, "b": 2},
        {"rest": '{"b":"x"}'},
    ]
    proved(engine, topic, source=large)


def test_a_column_keeps_its_type_and_a_table_its_way_to_get_columns(engine: Engine) -> None:
    topic = new_topic(engine)
    send(engine, topic, [{"a": 1}])
    engine.drain(engine.target(topic, value=SOURCE))

    def with_types(**types: str) -> Any:
        return engine.target(
            topic, value=Source(format="json", prefix="none", rest="rest", infer=Infer(types=types))
        )

    with suspended("schema_unsupported") as caught:
        with_types(a="string").open()
    assert "`infer.types` of calve.yaml, a: it is no string already" in caught.value.message
    send(engine, topic, [{"a": 2, "b": "2026-01-01T00:00:00Z"}, {"b": "soon"}])
    engine.drain(with_types(b="timestamptz", a="long"))
    assert [str(each["b"]) for each in rows(engine, topic)] == ["None", "2026-01-01 00:00:00", "None"]
    assert rows(engine, topic)[2]["rest"] == '{"b":"soon"}'

    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    declared = f"{topic}_d"
    engine.drain(
        engine.target(topic, table=declared, value=Source(format="json", prefix="none", schema=schema))
    )
    with suspended("schema_unsupported") as caught:
        engine.target(topic, table=declared, value=SOURCE).open()
    assert "calve.yaml says `schema: infer`" in caught.value.message


def test_of_two_jobs_that_learn_at_once_one_begins_again(engine: Engine) -> None:
    topic = new_topic(engine)
    send(engine, topic, [{"a": 1}])
    engine.drain(engine.target(topic, value=SOURCE))
    send(engine, topic, [{"b": 1}, {"b": "x"}])
    slow = engine.target(topic, value=SOURCE)
    slow.open()
    with (
        at("stage.begin", lambda _: engine.drain(engine.target(topic, value=SOURCE))),
        pytest.raises(Retryable),
    ):
        engine.round(slow)
    assert [given(each) for each in rows(engine, topic)] == [{"a": 1}, {"b": 1}, {"rest": '{"b":"x"}'}]
    assert engine.offsets(topic) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("point", [*OF_INFERENCE, "table.evolved", "publish.begin", "publish.committed"])
def test_a_job_that_dies_while_a_table_grows_leaves_no_trace(engine: Engine, point: str) -> None:
    topic = new_topic(engine)
    dead, alive = f"{topic}_d", f"{topic}_a"
    for values in ([{"a": 1}], [{"b": {"c": 1}}, {"b": {"c": "x"}, "a": 2.5}], [{"d": 1, "b": 2}]):
        send(engine, topic, values)
        with dying(point), pytest.raises(Died):
            engine.drain(engine.target(topic, table=dead, value=SOURCE))
        engine.drain(engine.target(topic, table=dead, value=SOURCE))
    engine.drain(engine.target(topic, table=alive, value=SOURCE))
    assert rows(engine, dead) == rows(engine, alive)
    assert engine.offsets(dead) == [(0, n) for n in range(4)]
    assert engine.table(dead).properties[LEARNT] == engine.table(alive).properties[LEARNT]
    proved(engine, topic, dead)


def test_dead_letters_that_come_back_make_columns_too(engine: Engine) -> None:
    topic = new_topic(engine)
    keyed = Source(format="string", prefix="none", column="k")
    engine.send(topic, b'{"a": 1}', key=b"good", partition=0)
    engine.send(topic, b'{"a": "x", "b": {"c": 1}}', key=b"\xff", partition=0)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic, value=SOURCE, key=keyed))
    assert outcome.ledger.rejected == {"key_malformed": 1}
    request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00")
    engine.table(topic).set_properties({REDRIVE: request.to_json()})
    engine.drain(engine.target(topic, value=SOURCE))
    assert [given(each) for each in rows(engine, topic)] == [
        {"k": "good", "a": 1},
        {"b": {"c": 1}, "rest": '{"a":"x"}'},
    ]


def test_what_nobody_can_read_twice_is_refused_before_it_is_written(engine: Engine) -> None:
    """A record as deep as JSON may be, names that are no columns, and a field that is there twice: the rounds go on."""
    topic = new_topic(engine)
    deep = b'{"a":' * 997 + b"1" + b"}" * 997
    send(
        engine, topic, [deep, b'{"a":1,"a":"x"}', b'{"":1,"\\u0000":2,"a b":3}', b'{"b":' + b"9" * 300 + b"}"]
    )
    (outcome,) = engine.drain(engine.target(topic, value=SOURCE))
    assert outcome.ledger.rejected == {"malformed": 1}
    found = rows(engine, topic)
    assert [json.loads(each["rest"] or "null") for each in found[1:]] == [{"": 1, "\x00": 2, "a b": 3}, None]
    assert found[0]["a"]["a"]["a"].startswith('{"a":{"a":')
    proved(engine, topic)
