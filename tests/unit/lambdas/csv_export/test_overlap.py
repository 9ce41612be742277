"""Two runs of one window that overlap, and one that was killed before: what a manifest names is there, as it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from threading import Semaphore, Thread
from typing import Any

import pytest
from botocore.exceptions import ClientError

from calve.config.publishing import Csv
from lambdas.csv_export.delivery import Outcome
from lambdas.export_notify.mail import Manifest
from tests.unit.lambdas.csv_export.lake import BUCKET, World, at, export, trades

WEEK = "exports/weekly/2026-11-09_2026-11-16/"
STEPS = ("get_paginator", "complete_multipart_upload", "put_object")
"""Where one run can meet another: it looks what was delivered, makes its file visible, writes the manifest."""

ORDERS = ["".join("a" if i in places else "b" for i in range(6)) for places in combinations(range(6), 3)]


class Client:
    """S3, with something done before calls of some names."""

    def __init__(self, s3: Any, names: tuple[str, ...], before: Callable[[str], None]) -> None:
        self._s3, self._names, self._before = s3, names, before

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._s3, name)
        if name not in self._names:
            return call

        def stopped(*words: Any, **arguments: Any) -> Any:
            self._before(name)
            return call(*words, **arguments)

        return stopped


class Run:
    """A run that stops before each of its steps until it is told to go on."""

    def __init__(self, lake: World, name: str) -> None:
        self._lake = replace(lake, run_id=name, s3=Client(lake.s3, STEPS, self._stop))
        self._go, self._stopped = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._work, daemon=True)
        self._over = False
        self.outcomes: list[Outcome] = []

    def begin(self) -> None:
        self._thread.start()
        assert self._stopped.acquire(timeout=60)

    def step(self) -> None:
        if self._over:  # it had nothing to write
            return
        self._go.release()
        assert self._stopped.acquire(timeout=60)

    def _stop(self, _: str) -> None:
        self._stopped.release()
        assert self._go.acquire(timeout=60)

    def _work(self) -> None:
        try:
            self.outcomes = self._lake.run(export(recheck_windows=0))
        finally:
            self._over = True
            self._stopped.release()


def manifests(lake: World) -> dict[str, dict[str, Any]]:
    return {key: json.loads(lake.bytes(key)) for key in lake.objects() if key.endswith("/manifest.json")}


def files(lake: World) -> set[str]:
    return {key for key in lake.objects() if not key.endswith("/manifest.json")}


def named(lake: World) -> set[str]:
    """The files that manifests name, each compared with what its manifest says of it."""
    keys = set()
    for part in (part for manifest in manifests(lake).values() for part in manifest["parts"]):
        body = lake.bytes(part["key"])
        assert (part["size_bytes"], part["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        keys.add(part["key"])
    return keys


@pytest.mark.parametrize("order", ORDERS)
def test_two_runs_that_overlap_leave_one_manifest_whose_file_is_its_own(lake: World, order: str) -> None:
    lake.made(trades(at(10)))
    runs = {"a": Run(lake, "a"), "b": Run(lake, "b")}
    runs["a"].begin()
    lake.append(trades(at(11), first=1))
    runs["b"].begin()  # it reads another state of the table, so its file has other bytes
    for each in order:
        runs[each].step()
    if order == "aaabbb":
        assert [runs[each].outcomes[0].correction for each in "ab"] == [False, True]
    else:
        assert sorted(run.outcomes[0].status for run in runs.values()) == ["unchanged", "written"]
    written = [run.outcomes[0] for run in runs.values() if run.outcomes[0].status == "written"]
    assert {outcome.manifest for outcome in written} == set(manifests(lake))
    assert named(lake) == files(lake)
    assert len(files(lake)) == len(written)


def test_a_run_that_loses_and_cannot_delete_its_files_ends_well(
    lake: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.made(trades(at(10)))
    winner = replace(lake, run_id="winner")
    won: list[Outcome] = []

    def refused(**_: Any) -> None:
        raise refusal("AccessDenied", "DeleteObject")

    monkeypatch.setattr(lake.s3, "delete_object", refused)
    slow = replace(lake, s3=Client(lake.s3, ("put_object",), lambda _: won.extend(winner.run(export()))))
    (outcome,) = slow.run(export())
    monkeypatch.undo()
    assert (outcome.status, won[0].status) == ("unchanged", "written")
    assert {key.split("/")[-2] for key in named(lake)} == {"winner"}


def test_a_manifest_whose_answer_was_lost_keeps_its_files(
    lake: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.made(trades(at(10)))
    real = lake.s3.put_object

    def twice(**arguments: Any) -> Any:
        real(**arguments)
        return real(**arguments)  # as botocore repeats what it has no answer to

    monkeypatch.setattr(lake.s3, "put_object", twice)
    (outcome,) = lake.run(export())
    assert outcome.status == "written"
    assert named(lake) == files(lake) == {f"{WEEK}1/run1/weekly_2026-11-09_2026-11-16.csv"}


def test_a_manifest_is_put_again_while_s3_has_another_request_for_it(
    lake: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.made(trades(at(10)))
    real, conflicts = lake.s3.put_object, iter(range(2))

    def busy(**arguments: Any) -> Any:
        if next(conflicts, None) is None:
            return real(**arguments)
        raise refusal("ConditionalRequestConflict", "PutObject")

    monkeypatch.setattr(lake.s3, "put_object", busy)
    assert [outcome.status for outcome in lake.run(export())] == ["written"]
    conflicts = iter(range(100))
    with pytest.raises(ClientError, match="ConditionalRequestConflict"):
        lake.run(export(name="other"))


def test_what_a_killed_run_leaves_is_named_by_no_manifest(lake: World) -> None:
    def die(_: str) -> None:
        raise SystemExit

    lake.made(trades(at(10), at(10), at(10)))
    what = export(csv=Csv(row_limit=1))
    killed = replace(lake, run_id="killed", s3=Client(lake.s3, ("put_object",), die))
    with pytest.raises(SystemExit):
        killed.run(what)
    assert (len(files(lake)), manifests(lake)) == (3, {})
    lake.catalog.load_table("trading.trades").overwrite(trades(at(10)))
    (outcome,) = lake.run(what)
    key = str(outcome.manifest)
    (part,) = Manifest.parse(key, lake.bytes(key).decode()).parts
    assert part.file == "weekly_2026-11-09_2026-11-16.csv"
    assert [each for each in files(lake) if each.startswith(part.key.removesuffix(part.file))] == [part.key]
    assert named(lake) == {part.key}


def test_an_error_between_two_files_takes_back_the_first(lake: World) -> None:
    lake.made(trades(at(10), at(10)))
    steps = iter(["first"])

    def second_fails(_: str) -> None:
        if next(steps, None) is None:
            raise RuntimeError

    broken = replace(lake, s3=Client(lake.s3, ("complete_multipart_upload",), second_fails))
    with pytest.raises(RuntimeError):
        broken.run(export(csv=Csv(row_limit=1)))
    assert lake.objects() == []
    assert "Uploads" not in lake.s3.list_multipart_uploads(Bucket=BUCKET)


def refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)
