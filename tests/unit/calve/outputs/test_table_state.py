"""What a table remembers of its states."""

import json

from calve.outputs.job_status import KEPT, FormerState, TableState

RUNNING = TableState("running", since="2026-01-01T00:00:00+00:00")
SUSPENDED = TableState(
    "suspended", "offset_gap", "offsets 3..4 are gone", "2026-01-02T00:00:00+00:00", "start anew"
)


def test_a_state_remembers_what_was_before_it() -> None:
    again = TableState("running", since="2026-01-03T00:00:00+00:00").after(SUSPENDED.after(RUNNING))
    assert TableState.from_json(again.to_json()) == again
    assert again.before == (
        FormerState("suspended", "2026-01-02T00:00:00+00:00", "offset_gap"),
        FormerState("running", "2026-01-01T00:00:00+00:00"),
    )


def test_memory_has_an_end() -> None:
    state = RUNNING
    for _ in range(2 * KEPT):
        state = RUNNING.after(state)
    assert len(state.before) == KEPT


def test_states_of_other_releases_are_read() -> None:
    former = '{"state": "suspended", "code": "offset_gap", "reason": "gone", "since": null}'
    assert TableState.from_json(former) == TableState("suspended", "offset_gap", "gone")
    later = json.dumps({"state": "new", "colour": "red", "before": [{"state": "running", "why": "?"}]})
    assert TableState.from_json(later) == TableState("new", before=(FormerState("running"),))
