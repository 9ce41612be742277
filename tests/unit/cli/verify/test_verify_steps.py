"""Steps as verification runs them, on explicit rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from calve.config.steps import NOTE, Filter, Flatten, Mask, Rule, Step, noted
from calve.errors import CalveError
from calve.schema.columns import Json, field, list_of, struct
from calve.table.position import Ledger, TopicKey
from cli.verify.claim import Round
from cli.verify.columns import iceberg_columns, laid_out
from cli.verify.compare import unlike
from cli.verify.counts import LeftOut
from cli.verify.formats.decoding import Decoded
from cli.verify.formats.fields import LEFT_OUT, Outcome
from cli.verify.keyed.modes import Mode
from cli.verify.sides import keyed_rows
from cli.verify.steps.chain import Chain, Run, Stepped, chain_of
from cli.verify.steps.queries import Queries
from cli.verify.topic import Records

KAFKA = pa.struct(
    [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))]
)
MAKER = pa.struct([("name", pa.large_string())])
ITEM = pa.struct(
    [("sku", pa.large_string()), ("maker", MAKER), ("tags", pa.map_(pa.large_string(), pa.large_string()))]
)
ADDRESS = pa.struct([("city", pa.large_string())])
CUSTOMER = pa.struct([("name", pa.large_string()), ("address", ADDRESS)])
ORDER = pa.schema(
    [
        ("id", pa.int32()),
        ("customer", CUSTOMER),
        ("o", pa.struct([("items", pa.large_list(ITEM))])),
        ("labels", pa.map_(pa.large_string(), pa.int32())),
        ("_kafka", KAFKA),
    ]
)
TOPIC = TopicKey("c", "t")


def order(number: int, **values: Any) -> dict[str, Any]:
    items = [
        {"sku": "a", "maker": {"name": "Acme"}, "tags": [("k", "v"), ("l", "w")]},
        {"sku": "b", "maker": None, "tags": None},
    ]
    row = {
        "id": number,
        "customer": {"name": "Ada", "address": {"city": "Turin"}},
        "o": {"items": items},
        "labels": [("red", 1), ("blue", 2)],
    }
    return row | values | {"_kafka": {"partition": 0, "offset": number}}


def orders(*rows: dict[str, Any]) -> pa.RecordBatch:
    """The rows as a part of a larger batch, as Arrow hands it on."""
    around = [order(90), *rows, order(91)]
    return pa.RecordBatch.from_pylist(around, ORDER).slice(1, len(rows))


def run(rows: pa.RecordBatch, *steps: Flatten, stay: tuple[str, ...] = ()) -> pa.RecordBatch:
    made, without = chain_of(steps, Queries(), stay).run(rows)
    assert without == {}
    return made.drop_columns("_kafka")


def test_structs_become_columns_at_any_depth() -> None:
    half = {"name": "Bob", "address": None}
    found = run(orders(order(1), order(2, customer=None), order(3, customer=half)), Flatten("__"))
    assert found.schema.names == ["id", "customer__name", "customer__address__city", "o__items", "labels"]
    assert found.column("customer__name").to_pylist() == ["Ada", None, "Bob"]
    assert found.column("customer__address__city").to_pylist() == ["Turin", None, None]
    assert [len(each) for each in found.column("o__items").to_pylist()] == [2, 2, 2]


def test_what_tells_a_deletion_stays_a_struct() -> None:
    found = run(orders(order(1)), Flatten(), stay=("customer",))
    assert found.schema.names == ["id", "customer", "o_items", "labels"]


def test_each_item_makes_a_row_and_a_list_without_any_makes_one() -> None:
    rows = orders(
        order(1), order(2, o={"items": []}), order(3, o={"items": None}), order(4, o=None), order(5)
    )
    found = run(rows, Flatten(explode="o.items", maps={"o.items.tags": ("k",), "labels": ("blue", "none")}))
    told = zip(
        *(
            found.column(name).to_pylist()
            for name in ("id", "o_items_sku", "o_items_maker_name", "o_items_tags_k")
        ),
        strict=True,
    )
    nothing = (None, None, None)
    assert list(told) == [
        (1, "a", "Acme", "v"),
        (1, "b", None, None),
        (2, *nothing),
        (3, *nothing),
        (4, *nothing),
        (5, "a", "Acme", "v"),
        (5, "b", None, None),
    ]
    assert found.column("o_items_tags").to_pylist()[:3] == [[("l", "w")], None, None]
    assert found.column("labels").to_pylist()[0] == [("red", 1)]
    assert found.column("labels_blue").to_pylist() == [2] * 7
    assert found.column("labels_none").to_pylist() == [None] * 7


def test_a_list_without_structs_and_with_nulls_makes_rows() -> None:
    schema = pa.schema([("n", pa.list_(pa.int32())), ("_kafka", KAFKA)])
    place = {"partition": 0, "offset": 1}
    rows = pa.RecordBatch.from_pylist([{"n": [3, None, 5], "_kafka": place}], schema)
    assert run(rows, Flatten(explode="n")).column("n").to_pylist() == [3, None, 5]


def test_keys_of_maps_become_columns_and_the_others_stay() -> None:
    rows = orders(order(1), order(2, labels=[]), order(3, labels=None), order(4, labels=[("red", None)]))
    found = run(rows, Flatten(maps={"labels": ("red",)}))
    assert found.column("labels").to_pylist() == [[("blue", 2)], [], None, []]
    assert found.column("labels_red").to_pylist() == [1, None, None, None]


def test_rows_are_laid_out_by_name_at_every_depth() -> None:
    wider = pa.schema(
        [
            ("labels", pa.map_(pa.large_string(), pa.int64())),
            ("later", pa.large_string()),
            ("o", pa.struct([("note", pa.string()), ("items", pa.list_(pa.struct([("sku", pa.string())])))])),
            ("id", pa.int64()),
        ]
    )
    found = laid_out(orders(order(1), order(2, o=None, labels=None), order(3, o={"items": []})), wider)
    assert found.schema == wider
    assert found.to_pylist() == [
        {
            "labels": [("red", 1), ("blue", 2)],
            "later": None,
            "o": {"note": None, "items": [{"sku": "a"}, {"sku": "b"}]},
            "id": 1,
        },
        {"labels": None, "later": None, "o": None, "id": 2},
        {"labels": [("red", 1), ("blue", 2)], "later": None, "o": {"note": None, "items": []}, "id": 3},
    ]


def test_a_column_that_cannot_hold_what_the_steps_make_is_named() -> None:
    with pytest.raises(CalveError, match="make customer a struct"):
        laid_out(orders(order(1)), pa.schema([("customer", pa.int32())]))


def test_types_have_the_names_that_iceberg_gives_them() -> None:
    kinds = [
        pa.int32(),
        pa.large_string(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.decimal128(9, 2),
        pa.date32(),
        pa.large_binary(),
    ]
    found = iceberg_columns(pa.schema([(f"c{n}", kind) for n, kind in enumerate(kinds)]))
    assert [each["type"] for each in found["fields"]] == [
        "int",
        "string",
        "timestamptz",
        "timestamp",
        "decimal(9, 2)",
        "date",
        "binary",
    ]


def only(keep: Callable[[pa.RecordBatch], Any], *, why: str = LEFT_OUT) -> Run:
    """A step that leaves out, or fails on, all rows but those to keep."""

    def run(rows: pa.RecordBatch, *, tombstones: bool) -> Outcome:
        kept = keep(rows)
        gone = rows.filter(pc.invert(kept)).column("_kafka").field("offset")
        return rows.filter(kept), dict.fromkeys(gone.to_pylist(), why)

    return run


def is_a(rows: pa.RecordBatch) -> Any:
    return pc.equal(rows.column("o_items_sku"), "a")


def test_what_a_step_leaves_out_is_a_record_before_a_list_is_exploded_and_a_row_behind_it() -> None:
    [items] = chain_of((Flatten(explode="o.items"),), Queries()).runs
    rows = orders(order(1), order(2), order(3, o=None))
    before = Chain([(only(lambda rows: pc.greater(rows.column("id"), 1)), False), items])
    made, without = before.run(rows)
    assert (made.column("id").to_pylist(), without) == ([2, 2, 3], {1: LEFT_OUT})
    behind = Chain([items, (only(is_a), True)])
    made, without = behind.run(rows.slice(0, 2))
    assert (made.column("id").to_pylist(), without) == ([1, 2], {})


def test_a_record_one_of_whose_rows_fails_makes_none() -> None:
    [items] = chain_of((Flatten(explode="o.items"),), Queries()).runs
    single = {"items": [{"sku": "a", "maker": None, "tags": None}]}
    chain = Chain([items, (only(is_a, why="step_failed"), True)])
    made, without = chain.run(orders(order(1), order(2, o=single)))
    assert (made.column("id").to_pylist(), without) == ([2], {1: "step_failed"})


class Given:
    """A decoder that refuses odd offsets."""

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        good = [order(offset) for offset in records.offsets if offset % 2 == 0]
        bad = [(n, "malformed") for n, offset in enumerate(records.offsets) if offset % 2]
        return Decoded([pa.RecordBatch.from_pylist(good, ORDER)] if good else [], bad)

    def dropped(self, _: Records) -> list[pa.RecordBatch]:
        raise AssertionError("no row deletes another")

    def doubtful(self, records: Records) -> set[int]:
        return set()


def records(size: int) -> Records:
    nothing: list[None] = [None] * size
    return Records([0] * size, list(range(size)), [0] * size, [0] * size, [*nothing], [*nothing], [*nothing])


def test_a_decoder_with_steps_behind_it_says_of_each_record_what_became_of_it() -> None:
    chain = Chain([(only(lambda rows: pc.not_equal(rows.column("id"), 2)), False)])
    stepped = Stepped(Given(), chain, pa.schema([("id", pa.int64()), ("_kafka", KAFKA)]))
    [batch], refused = stepped.rows(records(5))
    assert batch.column("id").to_pylist() == [0, 4]
    assert sorted(refused) == [(1, "malformed"), (2, LEFT_OUT), (3, "malformed")]
    assert sorted(stepped.rows(records(4)).refused) == [(1, "malformed"), (2, LEFT_OUT), (3, "malformed")]


def test_a_record_one_of_whose_rows_lacks_its_key_makes_none() -> None:
    """Each second item of an order is without a maker."""
    chain = chain_of((Flatten(explode="o.items"),), Queries())
    [kept], refused = keyed_rows(Stepped(Given(), chain, None), records(3), Mode(("o_items_maker_name",)))
    assert list(kept.places()) == []
    assert sorted(refused) == [(0, "null_key"), (1, "malformed"), (2, "null_key")]


NUMBERS = struct(field("a", "int"), field("b", list_of(struct(field("c", "string", doc="why")))))


def digest(*steps: Step, records: Json = NUMBERS, tags: Mapping[str, tuple[str, ...]] | None = None) -> str:
    return noted(steps, records, tags or {})[NOTE]


def test_a_round_without_steps_notes_nothing_of_them() -> None:
    assert noted((), NUMBERS, {}) == {}


def test_a_digest_tells_steps_apart_and_what_they_were_run_on() -> None:
    renamed = struct(field("a2", "int"), *NUMBERS["fields"][1:])
    wider = struct(field("a", "long"), *NUMBERS["fields"][1:])
    mask = Mask(fields={"a": Rule("hash")})
    others = [
        digest(Flatten()),
        digest(Flatten("__")),
        digest(Flatten(), Flatten()),
        digest(Flatten(explode="b"), Filter("true")),
        digest(Filter("true"), Flatten(explode="b")),
        digest(mask),
        digest(Mask(fields={"a": Rule("partial", 4)})),
        digest(mask, tags={"a": ("PII",)}),
        *(digest(Flatten(), records=each) for each in (renamed, wider)),
    ]
    assert len(set(others)) == len(others)


def test_a_digest_is_the_same_for_the_same_steps_in_every_release() -> None:
    maps = [Flatten(maps={"a": ("x",), "b": ("y",)}), Flatten(maps={"b": ("y",), "a": ("x",)})]
    assert digest(maps[0]) == digest(maps[1])
    plain = struct(field("a", "int"), field("b", list_of(struct(field("c", "string")))))
    assert digest(Flatten(), records=plain) == digest(Flatten()) == "af8ef847cb8171e0"


def round_(snapshot: int, start: int, to: int, said: int) -> Round:
    ledger = Ledger(filtered=said, filtered_by_steps=said)
    return Round(TOPIC, {0: start}, {0: to}, ledger, snapshot=snapshot)


def test_steps_must_leave_out_as_many_records_as_the_rounds_say() -> None:
    side = LeftOut([round_(2, 10, 20, 1), round_(1, 0, 10, 3)])
    side.take([(0, 5), (0, 6), (0, 15)])
    [finding] = side.findings({0: (0, 20)}, compacted=False)
    assert "snapshot 1 says that steps left out 3 records; of its offsets they leave out 2" in finding.message
    side.take([(0, 7)])
    assert list(side.findings({0: (0, 20)}, compacted=False)) == []
    [check] = side.checks({0: (0, 20)}, compacted=False, failed=False)
    assert (check.state, check.figures) == ("proved", {"records": 4})


def test_what_kafka_has_let_go_of_is_not_called_proved() -> None:
    side = LeftOut([round_(2, 10, 20, 1), round_(1, 0, 10, 3)])
    side.take([(0, 6), (0, 15)])
    assert list(side.findings({0: (6, 20)}, compacted=False)) == []
    _, gone = side.checks({0: (6, 20)}, compacted=False, failed=False)
    assert (gone.state, gone.figures["records"]) == ("not verifiable", 2)


def test_more_records_left_out_than_a_round_says_are_found_whatever_kafka_has_let_go() -> None:
    side = LeftOut([round_(1, 0, 10, 1)])
    side.take([(0, 5), (0, 6)])
    [finding] = side.findings({0: (5, 10)}, compacted=False)
    assert "left out 1 records; of its offsets they leave out 2" in finding.message


def test_rows_of_one_place_are_compared_in_no_order() -> None:
    one, two, three = (1, 1), (2, 2), (3, 2)
    assert list(unlike([("f", two), ("g", one)], [one, two])) == []
    assert list(unlike([("f", three), ("g", one)], [one, two])) == [("f", three, two)]
    assert list(unlike([("f", one), ("g", one)], [one, two])) == [("g", one, two)]
    assert list(unlike([("f", one), ("g", one)], [one])) == [("g", one, one)]
