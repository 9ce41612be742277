"""A table of an earlier release goes on under this one: its files lie in tests/releases, its topic is made anew around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.redrive import Result
from tests.integration.engine import Engine
from tests.integration.frozen import BUDGET, RELEASES, SOURCE, Frozen, records
from tests.integration.producing import produce
from tests.integration.proofs import assert_proved, proof

FOLDERS = sorted(path.parent for path in RELEASES.glob("*/table.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_table_of_an_earlier_release_goes_on_exactly_once(engine: Engine, folder: Path) -> None:
    frozen = Frozen(folder)
    frozen.thaw(engine)
    rows, letters = len(engine.offsets(frozen.name)), len(engine.letter_offsets(frozen.name))
    produce(engine.stack.bootstrap_servers, frozen.name, records(40, good=6, bad=2))
    engine.drain(engine.target(frozen.name, value=SOURCE, dead_letter_budget=BUDGET))
    assert len(set(engine.offsets(frozen.name))) == len(engine.offsets(frozen.name)) == rows + 6
    assert len(set(engine.letter_offsets(frozen.name))) == letters + 2
    answer = Result.of(engine.table(frozen.name).properties, "frozen")
    assert answer is not None
    assert (answer.selected, answer.refused, answer.problem) == (letters, {"malformed": letters}, None)
    assert_proved(proof(engine, frozen.name, value=SOURCE))
