from typing import Any

import pytest

from calve.config.engine_choice import Chosen, choose, of_settings
from calve.config.job import Table
from calve.config.steps import Flatten, Lookup
from calve.errors import Suspended
from calve.modes.upsert import ChangeData, Deduplicate, Upsert


def test_an_append_table_of_registered_schemas_may_be_columnar() -> None:
    assert of_settings(Table("a", "t", steps=(Flatten(),))) == ()


def test_every_reason_against_it_is_told() -> None:
    lookup = Lookup("b", {"id": "id"}, {"c": "d"})
    table = Table("a", "t", deduplicate=Deduplicate(("id",)), steps=(lookup, Flatten(explode="items")))
    assert of_settings(table) == ("it has the step lookup", "a record makes several rows of its key")


@pytest.mark.parametrize(
    ("settings", "reasons"),
    [
        ({"upsert": Upsert(("id",))}, ()),
        ({"deduplicate": Deduplicate(("id",))}, ()),
        ({"deduplicate": Deduplicate(("id",), 5)}, ()),
        ({"upsert": Upsert(("id",), "version")}, ()),
        ({"change_data": ChangeData(("id",), deletes=True)}, ()),
        ({"upsert": Upsert(("id",), deletes=True), "steps": (Flatten(),)}, ()),
        ({"change_data": ChangeData(("id",), deletes=True), "steps": (Flatten(),)}, ()),
        (
            {"upsert": Upsert(("id",)), "steps": (Flatten(explode="items"),)},
            ("a record makes several rows of its key",),
        ),
    ],
)
def test_a_table_by_key_may_be_columnar(settings: dict[str, Any], reasons: tuple[str, ...]) -> None:
    assert of_settings(Table("a", "t", **settings)) == reasons


def test_a_table_is_columnar_where_it_can_be() -> None:
    assert choose("a", "auto", ()) == choose("a", "columnar", ()) == Chosen("columnar")
    assert choose("a", "auto", ("it is wide",)) == Chosen("rows", ("it is wide",))
    assert choose("a", "rows", ()).engine == "rows"
    with pytest.raises(Suspended, match=r"table a cannot be made .* it is wide") as refused:
        choose("a", "columnar", ("it is wide",))
    assert refused.value.code == "engine_unsupported"
