import json

import pytest

from calve.columns import field, list_of, struct, with_ids
from calve.errors import Suspended
from calve.job import Deduplicate, Transform, Upsert
from calve.modes import buckets, keyed, noted, require_mode

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
    found = keyed(COLUMNS, Upsert(("of", "_kafka.key"), order_by="price"))
    assert found.key == ("of.live", "of.shop", "_kafka.key")


def test_a_table_notes_ids_which_outlive_renames() -> None:
    text = noted(COLUMNS, Upsert(("of", "id"), order_by="_kafka.timestamp"))
    renamed = json.loads(json.dumps(COLUMNS).replace('"of"', '"shop_of"').replace('"id", "req', '"no", "req'))
    assert text == noted(renamed, Upsert(("shop_of", "no"), order_by="_kafka.timestamp"))
    assert text != noted(COLUMNS, Upsert(("of", "id")))
    assert noted(COLUMNS, None) is None


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
        keyed(COLUMNS, upsert)
    assert caught.value.code == "key_unusable"


def test_a_table_is_bucketed_by_the_first_column_that_can_be() -> None:
    assert buckets(COLUMNS, Upsert(("of", "id"))) == (Transform("of.shop", "bucket", 8),)
    assert buckets(COLUMNS, Upsert(("of.live",))) == ()


UPSERTED, OTHERWISE = noted(COLUMNS, Upsert(("id",))), noted(COLUMNS, Upsert(("of",)))
FIRST = noted(COLUMNS, Deduplicate(("id",)))


@pytest.mark.parametrize(
    ("before", "wanted", "says", "fix"),
    [
        (None, UPSERTED, "is to hold the newest record of each key, but has held every record", "`upsert`"),
        (UPSERTED, None, "is to hold every record, but has held the newest of each key", "`upsert`"),
        (FIRST, UPSERTED, "newest record of each key, but has held the first", "`deduplicate` or `upsert`"),
        (UPSERTED, OTHERWISE, "made with other settings of `upsert`", "of `upsert` at"),
    ],
)
def test_a_change_of_mode_is_said_in_words(
    before: str | None, wanted: str | None, says: str, fix: str
) -> None:
    require_mode("d.t", "t", before, before)
    with pytest.raises(Suspended, match=says) as caught:
        require_mode("d.t", "t", before, wanted)
    assert caught.value.code == "mode_changed"
    assert fix in (caught.value.fix or "")
