"""The crash tests can fail: with one rule of the protocol taken out of the engine, each of these does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from calve.table.dead_letters import Recovery, recover_dead_letters
from calve.table.protocol import next_position
from glue_jobs.dead_letters import table
from glue_jobs.dead_letters.table import DeadLetterTable
from glue_jobs.iceberg import staging
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.staging import Deletes, Staged
from glue_jobs.operations import publishing
from glue_jobs.rounds.round import Round
from glue_jobs.rounds.steps import Audited, Committed
from tests.integration.crash.test_crash import abandoned, overtaken
from tests.integration.crash.test_mode_crash import compacted
from tests.integration.support.engine import Engine

pytestmark = pytest.mark.long

publish = Round.publish


def without_position_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publishing, "may_publish", lambda *_: True)


def with_dead_letters_first(patch: pytest.MonkeyPatch) -> None:
    def letters_first(self: Round, audited: Audited) -> Committed:
        judged, planned = audited.judged, audited.judged.written.plan
        if judged.rejects.rows:
            table = planned.at.table
            position = next_position(
                planned.at.base,
                planned.topic,
                planned.batch.to,
                round_id=self.id,
                writer=table.services.writer,
                dead_letters=judged.held,
            )
            table.dead_letters.publish(position, judged.rejects)
        return publish(self, audited)

    patch.setattr(Round, "publish", letters_first)


def without_roll_forward(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetterTable, "recover", lambda *_: True)


def without_dropping_branches(patch: pytest.MonkeyPatch) -> None:
    def keep(*arguments: object, **named: object) -> Recovery:
        return Recovery(recover_dead_letters(*arguments, **named).publish)  # type: ignore[arg-type]

    patch.setattr(table, "recover_dead_letters", keep)


def without_looking_at_files(patch: pytest.MonkeyPatch) -> None:
    def replacing(table: Table, staged: Staged, deletes: Deletes) -> Any:
        update = table.java.newRowDelta()
        for each in staged.files:
            update = update.addRows(each)
        for each in deletes.files:
            update = update.addDeletes(each)
        return update

    patch.setattr(staging, "_replacing", replacing)


@pytest.mark.parametrize(
    ("mutate", "check", "point", "says"),
    [
        (without_position_check, overtaken, "publish.begin", "too many"),
        (with_dead_letters_first, abandoned, "release.appended", "published before the table named them"),
        (without_roll_forward, abandoned, "publish.committed", "missing|the table was left"),
        (without_dropping_branches, abandoned, "reject.end", "left over: .*calve_round_"),
        (without_looking_at_files, compacted, "publish.begin", "its ledgers say|too many"),
    ],
)
def test_a_rule_taken_out_is_noticed(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Engine, str], None],
    point: str,
    says: str,
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=says):
        check(engine, point)
