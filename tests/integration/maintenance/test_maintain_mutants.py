"""The tests of maintenance can fail: rules are taken out of it one by one, and each is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from calve.table.protocol import Commit
from calve.table.summary import has_position
from glue_jobs.iceberg import rewriting
from glue_jobs.iceberg.rewriting import CarriedCommit, replacement
from glue_jobs.maintenance import compaction
from glue_jobs.maintenance.retention import retain
from tests.integration.maintenance import test_maintain as tests
from tests.integration.support.engine import Engine

pytestmark = pytest.mark.full


def test_a_rewriting_that_looks_at_what_was_deleted_since_its_end_alone_is_noticed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:

    def of_now(table: Any, _: Any, tasks: Any, staged: Any) -> Any:
        return replacement(table, table.java.currentSnapshot(), tasks, staged)

    monkeypatch.setattr(compaction, "replacement", of_now)
    with pytest.raises(AssertionError):
        tests.test_rows_deleted_since_the_plan_do_not_come_back(engine)


def test_a_commit_that_says_an_older_position_is_noticed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(ancestors: Iterator[Commit]) -> Commit | None:
        found = [each for each in ancestors if has_position(each.summary)]
        return found[min(1, len(found) - 1)]

    monkeypatch.setattr(rewriting, "position_commit", older)
    with pytest.raises(AssertionError):
        tests.test_files_converge_while_rounds_go_on_and_a_reader_never_counts_less(engine, {}, 1)


def test_a_commit_that_does_not_ask_who_was_forgotten_is_noticed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(CarriedCommit, "is_forgetting", property(lambda _: False))
    with pytest.raises((Exception, pytest.fail.Exception)) as noticed:
        tests.test_what_was_written_before_a_person_was_forgotten_is_not_committed(engine, tmp_path)
    assert "Retryable" in str(noticed.value)


def test_a_row_that_leaves_a_microsecond_early_is_noticed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def early(upkept: Any, kind: Any, column: str, before: Any, **bounds: Any) -> Any:
        return retain(upkept, kind, column, before + timedelta(microseconds=1), **bounds)

    monkeypatch.setattr(tests, "retain", early)
    with pytest.raises(AssertionError):
        tests.test_rows_leave_at_the_moment_that_they_are_old_enough(engine)
