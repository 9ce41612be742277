import json
from collections import Counter
from io import BytesIO

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader

from calve.errors import ConfigError
from calve.schema.columns import REASONS
from cli.run.datagen.plan import BLOCK, DATASETS, MALFORMED, Plan, blocks, in_turn
from cli.run.datagen.produce import Breaker, Record, Source, register, rows, schema_text


@pytest.fixture
def registry() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def records(plan: Plan, registry: SchemaRegistryClient) -> list[Record]:
    return list(Source(plan, registry))


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("version", ["", "v2"])
def test_records_have_the_bytes_of_confluents_avro_serializer(dataset, version, registry):
    text = schema_text(dataset, version)
    added = {"": {}, "v2": {"venue": "XNAS"} if dataset == "stock_trades" else {"language": "lt"}}[version]
    plan = Plan("t", 500, dataset)
    made = [row | added for row in rows(plan, next(blocks(plan)))]
    encoder = register(registry, "t", text, made[0])
    serializer = AvroSerializer(registry, text)
    context = SerializationContext("t", MessageField.VALUE)
    assert [encoder.encode(row) for row in made] == [serializer(row, context) for row in made]


def test_the_same_seed_makes_the_same_records(registry):
    plan = Plan("t", 2_000, seed=3, duplicates=0.1, malformed=in_turn(16), evolve=True, tombstones=0.01)
    assert records(plan, registry) == records(plan, registry)
    other = Plan("t", 2_000, seed=4, duplicates=0.1, malformed=in_turn(16), evolve=True, tombstones=0.01)
    assert records(plan, registry) != records(other, registry)


def test_another_count_keeps_the_records_of_full_blocks(registry):
    short, long = Plan("t", BLOCK, seed=1), Plan("t", BLOCK + 10, seed=1)
    assert records(short, registry) == records(long, registry)[:BLOCK]


@pytest.mark.parametrize("count", [1_000, BLOCK, 3 * BLOCK + 5])
def test_every_kind_appears_exactly_as_often_as_asked(count):
    plan = Plan("t", count, duplicates=0.05, tombstones=0.02, malformed=in_turn(60))
    placed = Counter(kind for block in blocks(plan) for kind in block.special.values())
    assert placed == plan.special()
    assert placed["duplicate"] == round(count * 0.05)
    assert placed["tombstone"] == round(count * 0.02)
    assert sum(block.size for block in blocks(plan)) == count


def test_malformed_records_are_spread_over_the_whole_topic():
    plan = Plan("t", 4 * BLOCK, malformed=in_turn(40))
    assert [len(block.special) for block in blocks(plan)] == [10, 10, 10, 10]


def test_in_turn_gives_every_kind_its_share():
    assert in_turn(60) == dict(zip(MALFORMED, [8, 8, 8, 8, 7, 7, 7, 7], strict=True))
    assert sum(in_turn(3).values()) == 3
    assert in_turn(0) == {}


def test_fates_add_up_and_use_the_engines_words():
    plan = Plan("t", 1_000, duplicates=0.1, tombstones=0.05, malformed=in_turn(16))
    fates = plan.fates()
    assert fates.applied + sum(fates.dead_lettered.values()) == 1_000
    assert fates.dead_lettered["null_value"] == 50 + 2
    assert fates.dead_lettered["malformed"] == 4
    assert fates.duplicates == 100
    assert set(MALFORMED.values()) <= set(REASONS)


def test_a_duplicate_repeats_an_earlier_record(registry):
    plan = Plan("t", 500, duplicates=0.2)
    made = records(plan, registry)
    for place, kind in next(blocks(plan)).special.items():
        assert kind == "duplicate"
        assert made[place] in made[:place]


def test_a_duplicate_is_never_malformed(registry):
    plan = Plan("t", 100, duplicates=0.5, malformed={"bad_magic": 49})
    made = records(plan, registry)
    assert sum(value is not None and value[0] == 0 for _, value in made) == 51


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("kind", ["truncated_payload", "absurd_length"])
def test_malformed_payloads_do_not_decode(dataset, kind, registry):
    made = records(Plan("t", 5, dataset, malformed={kind: 5}), registry)
    schema = parse_schema(json.loads(schema_text(dataset)))
    for _, value in made:
        assert value is not None
        assert value[0] == 0
        with pytest.raises(EOFError):
            schemaless_reader(BytesIO(value[5:]), schema, None)


@pytest.mark.parametrize("dataset", DATASETS)
def test_an_absurd_length_costs_a_dozen_bytes_at_most(dataset, registry):
    [(_, value)] = records(Plan("t", 1, dataset, malformed={"absurd_length": 1}), registry)
    assert value is not None
    assert len(value) <= 12


def test_an_incompatible_record_is_whole_but_of_another_subject(registry):
    [(_, value)] = records(Plan("t", 1, malformed={"incompatible_schema": 1}), registry)
    assert value is not None
    other = registry.get_latest_version("t_other-value")
    assert int.from_bytes(value[1:5], "big") == other.schema_id
    assert other.schema.schema_str
    row = schemaless_reader(BytesIO(value[5:]), parse_schema(json.loads(other.schema.schema_str)), None)
    assert row == {"side": True, "quantity": "many", "userid": 1}


def test_every_kind_of_malformed_record_can_be_made():
    breaker = Breaker(b"\0\0\0\0\1", b"", b"\0\0\0\0\2x")
    good = b"\0\0\0\0\1payload"
    broken = {kind: breaker.broken(kind, good) for kind in MALFORMED}
    assert broken["null_value"] is None
    assert len(broken["truncated"] or b"") < 5
    assert good not in broken.values()


def test_evolve_writes_the_second_half_with_another_schema(registry):
    made = records(Plan("t", 100, evolve=True), registry)
    ids = [int.from_bytes((value or b"")[1:5], "big") for _, value in made]
    assert len(set(ids[:50])) == len(set(ids[50:])) == 1
    assert ids[0] != ids[-1]
    assert len(registry.get_versions("t-value")) == 2


def test_negative_prices_and_large_quantities_are_shares_of_the_trades():
    plan = Plan("t", 1_000, negative_prices=0.03, large_quantities=0.05)
    made = list(rows(plan, next(blocks(plan))))
    assert sum(row["price"] < 0 for row in made) == 30
    assert sum(row["quantity"] > 4_000 for row in made) == 50


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ({"count": 0}, "count is 0"),
        ({"duplicates": 1.5}, "a share is between 0 and 1"),
        ({"malformed": {"rotten": 1}}, "rotten"),
        ({"count": 10, "malformed": {"bad_magic": 11}}, "do not fit"),
        ({"count": 10, "duplicates": 1.0}, "do not fit"),
        ({"dataset": "users", "negative_prices": 0.1}, "neither prices"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"topic": "no topic"}, "no topic's name|is not a topic name"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(plan, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Plan(**({"topic": "t", "count": 100} | plan))
