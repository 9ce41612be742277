"""The job's arguments, as Glue and as a laptop give them."""

from __future__ import annotations

import pytest

from calve.job import Job, Kafka, Lake, Registry
from glue_jobs.ingest import _read

SETTINGS = Job(
    "trading", "main", Kafka("made:1"), Registry("http://r"), Lake("trading", "s3://made"), ()
).to_json()
GLUES_OWN = ["--JOB_NAME", "trading-main", "--job-bookmark-option", "job-bookmark-disable", "--cont", "x"]


@pytest.mark.parametrize(
    ("given", "drains"),
    [([], False), (["--drain"], True), (["--drain", "true"], True), (["--drain", "false"], False)],
)
def test_drain_has_a_value_on_glue(given: list[str], drains: bool) -> None:
    _, options = _read(["--settings", SETTINGS, *given, *GLUES_OWN])
    assert options.drain is drains
    assert options.control is None


def test_what_only_a_deploy_knows_wins_over_the_settings() -> None:
    more = [
        "--warehouse",
        "s3://lake/p",
        "--region",
        "eu-north-1",
        "--kms-key",
        "arn:k",
        "--bootstrap-servers",
        "b:2",
    ]
    job, _ = _read(["--settings", SETTINGS, *more])
    assert job.lake == Lake("trading", "s3://lake/p", region="eu-north-1", kms_key="arn:k")
    assert job.kafka == Kafka("b:2")


def test_settings_stand_where_a_deploy_says_nothing() -> None:
    job, _ = _read(["--settings", SETTINGS, *GLUES_OWN])
    assert job == Job.from_json(SETTINGS)
