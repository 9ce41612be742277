"""A table of an earlier release goes on under this one: its files lie in tests/releases, its topic is made anew around them."""

from __future__ import annotations

import pytest

from calve.requests.redrive import Result
from tests.integration.support.engine import Engine
from tests.integration.support.frozen import RELEASES, SETTINGS, SOURCE, Frozen, records
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.producing import produce

TABLES = [
    pytest.param(
        found := Frozen(folder, kind), id=found.name, marks=pytest.mark.long if kind == "upsert" else ()
    )
    for folder in sorted(RELEASES.iterdir())
    for kind in SETTINGS
    if (folder / f"{kind}.json").exists()
]


@pytest.mark.parametrize("frozen", TABLES)
def test_a_table_of_an_earlier_release_goes_on_exactly_once(engine: Engine, frozen: Frozen) -> None:
    frozen.thaw(engine)
    ids = {row["id"] for row in engine.rows(frozen.name).select("id").collect()}
    rows, letters = len(engine.offsets(frozen.name)), len(engine.letter_offsets(frozen.name))
    later = records(14, good=6, bad=2)
    produce(engine.stack.bootstrap_servers, frozen.name, later)
    engine.drain(engine.target(frozen.name, **frozen.settings))
    new = len({*range(14, 20)} - ids) if frozen.kind == "upsert" else 6
    assert len(set(engine.offsets(frozen.name))) == len(engine.offsets(frozen.name)) == rows + new
    assert len(set(engine.letter_offsets(frozen.name))) == letters + 2
    if frozen.kind == "append":
        answer = Result.of(engine.table(frozen.name).properties, "frozen")
        assert answer is not None
        assert (answer.selected, answer.refused, answer.problem) == (letters, {"malformed": letters}, None)
    assert_proved(proof(engine, frozen.name, value=SOURCE))
