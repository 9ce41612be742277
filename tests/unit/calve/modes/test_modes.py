import json
from dataclasses import replace

import pytest

from calve.config.job import Table
from calve.config.steps import Mask, Rule, tokens_by
from calve.errors import Suspended
from calve.modes.aggregate import Aggregate, Measure, Window
from calve.modes.history import History, with_history
from calve.modes.mode import APPEND, Mode
from calve.modes.switch import described, folded_as, folded_to, opened, require_kind, switch
from calve.modes.upsert import ChangeData, Deduplicate, Upsert, require_tombstones
from calve.schema.columns import field, list_of, struct, with_ids
from calve.table.position import TopicKey
from calve.table.summary import kind_of

COLUMNS = with_ids(
    struct(
        field("id", "long"),
        field("of", struct(field("live", "boolean"), field("shop", "string"))),
        field("price", "double"),
        field("tags", list_of("string")),
        field("_kafka", struct(field("key", "binary"), field("timestamp", "timestamptz"))),
    )
)


def test_a_struct_stands_for_its_fields() -> None:
    found = Upsert(("of", "_kafka.key"), order_by="price").resolve(COLUMNS)
    assert found.key == ("of.live", "of.shop", "_kafka.key")


def test_a_table_notes_ids_which_outlive_renames() -> None:
    text = Upsert(("of", "id"), order_by="_kafka.timestamp").note(COLUMNS)
    renamed = json.loads(json.dumps(COLUMNS).replace('"of"', '"shop_of"').replace('"id", "req', '"no", "req'))
    assert text == Upsert(("shop_of", "no"), order_by="_kafka.timestamp").note(renamed)
    assert text != Upsert(("of", "id")).note(COLUMNS)
    assert APPEND.note(COLUMNS) is None


@pytest.mark.parametrize(
    ("upsert", "says"),
    [
        (Upsert(("nothing",)), "no column nothing"),
        (Upsert(("of.nothing",)), "no column of.nothing"),
        (Upsert(("price",)), "price is a double"),
        (Upsert(("tags",)), "tags is a list"),
        (Upsert(("id",), order_by="of"), "of is a struct, which has no order"),
        (Upsert(("id",), order_by="when"), "no column when"),
    ],
)
def test_columns_that_tell_no_rows_apart_are_refused(upsert: Upsert, says: str) -> None:
    with pytest.raises(Suspended, match=says) as caught:
        upsert.resolve(COLUMNS)
    assert caught.value.code == "key_unusable"


UPSERTED, OTHERWISE = Upsert(("id",)).note(COLUMNS), Upsert(("of",)).note(COLUMNS)
FIRST = Deduplicate(("id",)).note(COLUMNS)
CHANGES = ChangeData(("id",)).note(COLUMNS)
KEEPING = ChangeData(("id",), source_order=("lsn",), keep_deleted=True).note(COLUMNS)
BY_ID = Aggregate(("id",), (Measure("n", "count(*)"), Measure("total", "sum(a * b)")))
TOTALS = BY_ID.note(COLUMNS)
HOURLY = replace(BY_ID, window=Window("_kafka.timestamp", 3_600_000)).note(COLUMNS)
VERSIONS = History(("id",)).note(COLUMNS)
TOPIC = TopicKey("c", "t")
OPENED = opened(UPSERTED or "", {TOPIC: {0: 7}})


def test_the_masking_key_that_hashes_a_key_stays() -> None:
    mask = Mask({"id": Rule("hash")}, masking_key="a")
    table = Table("t", "t", upsert=Upsert(("id",)), steps=(mask,))
    noted = table.mode_note(COLUMNS)
    assert described(COLUMNS, noted) == "upsert by id (hashed by the masking key a)"
    assert switch("db.t", "t", noted, noted) is None
    for others in ((), (replace(mask, masking_key="b"),)):
        with pytest.raises(
            Suspended, match=r"are hashed by the masking key a, and are to be (not )?hashed"
        ) as caught:
            switch("db.t", "t", noted, replace(table, steps=others).mode_note(COLUMNS))
        assert caught.value.code == "mode_changed"
    assert (
        replace(table, steps=(Mask({"price": Rule("hash")}, masking_key="a"),)).mode_note(COLUMNS) == UPSERTED
    )


def test_a_tag_chooses_no_masking_key_for_the_key_of_a_mode() -> None:
    mask = Mask({"of.shop": Rule("hash")}, {"PII": Rule("hash"), "X": Rule("drop")}, masking_key="a")
    tags = {"id": ["PII"], "of.shop": ["PII"], "price": ["X"]}
    assert tokens_by((mask,), tags) == {"id": None, "ofshop": "a", "kafkakey": "a"}


@pytest.mark.parametrize(
    ("before", "wanted", "what"),
    [
        (None, None, None),
        (UPSERTED, UPSERTED, None),
        (OPENED, None, None),
        (None, UPSERTED, "fold"),
        (UPSERTED, None, "open"),
        (OPENED, UPSERTED, "fold"),
        (None, VERSIONS, "version"),
        (VERSIONS, VERSIONS, None),
    ],
)
def test_a_table_may_be_appended_to_and_upserted_in_turn(
    before: str | None, wanted: str | None, what: str | None
) -> None:
    assert switch("d.t", "t", before, wanted) == what


def test_a_table_that_was_opened_knows_what_it_was_and_up_to_where() -> None:
    assert (kind_of(OPENED), folded_as(OPENED), folded_to(OPENED)) == ("append", UPSERTED, {TOPIC: {0: 7}})
    assert (kind_of(None), folded_as(None), folded_to(UPSERTED)) == ("append", None, {})


@pytest.mark.parametrize(
    ("before", "wanted", "says", "fix"),
    [
        (
            FIRST,
            UPSERTED,
            "newest record of each key, but it has held the first",
            "`deduplicate` or `upsert`",
        ),
        (FIRST, None, "is to hold every record, but it has held the first", "`deduplicate` at"),
        (None, FIRST, "is to hold the first record of each key, but it has held every", "`deduplicate` at"),
        (UPSERTED, OTHERWISE, "made with other settings of `upsert`", "of `upsert` at"),
        (None, CHANGES, "rows of a database's table, but it has held every", "`change_data` at"),
        (CHANGES, UPSERTED, "but it has held the rows of a database's table", "`change_data` or `upsert` at"),
        (CHANGES, KEEPING, "made with other settings of `change_data`", "of `change_data` at"),
        (None, TOTALS, "is to hold totals of groups of records, but it has held every", "`aggregate` at"),
        (TOTALS, FIRST, "but it has held totals of groups", "`aggregate` or `deduplicate`"),
        (TOTALS, HOURLY, "made with other settings of `aggregate`", "of `aggregate` at"),
        (OPENED, OTHERWISE, "newest record of each key before, by other settings", "of `upsert` at"),
    ],
)
def test_a_change_of_mode_that_the_rows_cannot_follow_is_refused_in_words(
    before: str | None, wanted: str | None, says: str, fix: str
) -> None:
    with pytest.raises(Suspended, match=says) as caught:
        switch("d.t", "t", before, wanted)
    assert caught.value.code == "mode_changed"
    assert fix in (caught.value.fix or "")


def test_a_table_of_changes_says_so() -> None:
    assert described(COLUMNS, CHANGES) == "change_data by id"
    assert described(COLUMNS, KEEPING) == "change_data by id; newest by source.lsn; deleted rows stay"


def test_where_tombstones_say_nothing_a_compacted_topic_is_refused() -> None:
    by_key = ChangeData(("_kafka.key",), deletes=True)
    modes: tuple[Mode, ...] = (APPEND, Upsert(("id",)), by_key)
    for mode in modes:
        require_tombstones("t", mode, compacted=True)
    require_tombstones("t", ChangeData(("id",)), compacted=False)
    with pytest.raises(Suspended, match="topic t is compacted") as caught:
        require_tombstones("t", ChangeData(("id",)), compacted=True)
    assert caught.value.code == "topic_compacted"


def test_a_table_of_totals_notes_the_words_of_calve_yaml() -> None:
    assert Aggregate.of_note(TOTALS or "") == BY_ID
    assert Aggregate.of_note(HOURLY or "").window == Window("_kafka.timestamp", 3_600_000)
    assert described(COLUMNS, TOTALS) == "aggregate by id; n = count(*), total = sum(a * b)"
    assert described(COLUMNS, HOURLY).endswith("; each 3600 s of _kafka.timestamp")


def test_a_history_needs_a_time_and_a_name_of_its_own() -> None:
    assert History(("id",), by="_kafka.timestamp").resolve(COLUMNS).key == ("id",)
    with pytest.raises(Suspended, match="price cannot order versions: it is a double"):
        History(("id",), by="price").resolve(COLUMNS)
    with pytest.raises(Suspended, match="a history needs this name"):
        with_history(struct(field("_History", "string")))


def test_a_position_says_how_versions_follow_one_another() -> None:
    by_column, changes = History(("id",), by="_kafka.timestamp"), History(("id",), changes=True)
    assert described(COLUMNS, by_column.note(COLUMNS)) == "history by id; from _kafka.timestamp"
    assert described(COLUMNS, changes.note(COLUMNS)) == "history by id; of change events"
    for other in (None, changes.note(COLUMNS), Upsert(("id",)).note(COLUMNS)):
        with pytest.raises(Suspended, match=r"history|versions|settings"):
            switch("t", "t", by_column.note(COLUMNS), other)
    for before in (OPENED, UPSERTED, CHANGES, FIRST):  # rows are gone that versions would need
        with pytest.raises(Suspended, match=r"every version of each row|newest record of each key before"):
            switch("t", "t", before, by_column.note(COLUMNS))
    with pytest.raises(
        Suspended, match="every version of each row"
    ):  # the rows are events, with other columns
        switch("t", "t", None, changes.note(COLUMNS))


def test_a_table_is_refused_before_its_columns_change() -> None:
    rows, changes = History(("id",)), History(("id",), changes=True)
    for before, now in (
        (None, Upsert(("id",))),
        (None, rows),
        (UPSERTED, APPEND),
        (changes.note(COLUMNS), changes),
    ):
        require_kind("t", "t", before, now)
    refused: list[tuple[str | None, Mode]] = [
        (None, changes),
        (UPSERTED, rows),
        (rows.note(COLUMNS), changes),
        (changes.note(COLUMNS), rows),
        (None, ChangeData(("id",))),
    ]
    for before, now in refused:
        with pytest.raises(Suspended) as caught:
            require_kind("t", "t", before, now)
        assert caught.value.code == "mode_changed"


def test_a_history_of_changes_needs_a_topic_that_keeps_deletions() -> None:
    require_tombstones("t", History(("id",), changes=True), compacted=False)
    require_tombstones("t", History(("id",)), compacted=True)
    with pytest.raises(Suspended, match="is compacted") as caught:
        require_tombstones("t", History(("id",), changes=True), compacted=True)
    assert "deletes: keep" not in str(caught.value.fix)
