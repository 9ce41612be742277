"""Programs for JSON are numbers that the machine knows, and what has none says why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calve.decoding.json_program import Kind, slot, slots
from glue_jobs.decode.machines import json_machine


def test_the_machine_s_nodes_are_those_of_programs() -> None:
    names = {kind.name for kind in Kind}
    assert {kind.name: kind.value for kind in Kind} == {
        name: value for name, value in vars(json_machine).items() if name in names
    }


@given(st.lists(st.binary(min_size=1, max_size=24), unique=True, max_size=40))
def test_every_name_is_in_the_slots_after_its_own(names: list[bytes]) -> None:
    size, *held = slots(names)
    assert len(held) == size > len(names)
    for number, name in enumerate(names):
        place = slot(name, size)
        while held[place] != number + 1:
            assert held[place] != 0
            place = (place + 1) % size
