"""Programs are numbers that the machine knows, and what has none says why."""

from __future__ import annotations

from calve.decoding.avro_operations import Op
from glue_jobs.decode.machines import avro_machine as machine

NAMES = {"BYTES": "TEXT"}


def test_the_machine_s_operations_are_those_of_programs() -> None:
    assert {NAMES.get(op.name, op.name): op.value for op in Op} == {
        name: value
        for name, value in vars(machine).items()
        if name in {NAMES.get(op.name, op.name) for op in Op}
    }
