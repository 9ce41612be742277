"""The job's arguments, as Glue and as a laptop give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from calve.config.job import Job, Kafka, Lake, Registry
from calve.errors import ConfigError
from glue_jobs import maintain
from glue_jobs.ingest import _read, until

SETTINGS = Job(
    "trading", "main", Kafka("made:1"), Registry("http://r"), Lake("trading", "s3://made"), ()
).to_json()
GLUES_OWN = [
    *(
        "--JOB_NAME",
        "trading-main",
        "--job-bookmark-option",
        "job-bookmark-disable",
        "--enable-metrics",
        "true",
    ),
    *(
        "--conf",
        "spark.a=b",
        "--conf",
        "spark.c=-Da=1",
        "-Db=2",
        "--JOB_ID",
        "j_1",
        "--true",
        "--TempDir",
        "",
    ),
]


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


@pytest.mark.parametrize("read", [_read, maintain._read])
@pytest.mark.parametrize(
    "given",
    [
        ["--additional-python-modules", "s3://lake/a.whl"],
        ["--customer-driver-env-vars=PYTHONPATH=/tmp"],
        ["--python-modules-installer-option", "-r"],
        ["--class", "Other"],
        ["--datalake-formats", "iceberg"],
        ["--bootstrap-server", "another:9092"],
        ["--warehous=s3://another"],
    ],
)
def test_an_argument_that_no_definition_has_is_refused_by_name(read, given: list[str]) -> None:
    with pytest.raises(ConfigError, match=given[0].partition("=")[0]) as caught:
        read(["--settings", SETTINGS, *GLUES_OWN, *given])
    assert not any(each in caught.value.message for each in ("s3://", "another", "/tmp"))


@pytest.mark.parametrize("read", [_read, maintain._read])
def test_a_definitions_arguments_are_taken_whether_glue_shows_them_to_the_script_or_not(read) -> None:
    shown = [
        *(
            "--extra-py-files",
            "s3://a/b.zip",
            "--extra-jars",
            "s3://a/b.jar",
        ),
        *(
            "--user-jars-first",
            "true",
            "--extra-files",
            "s3://a/b.json",
            "--custom-logGroup-prefix",
            "/calve",
        ),
        *("--enable-auto-scaling", "true", "--scriptLocation", "s3://a/b.py", "--job-language", "python"),
    ]
    job, _ = read(["--settings", SETTINGS, *GLUES_OWN, *shown])
    assert job == Job.from_json(SETTINGS)


@pytest.mark.parametrize(
    ("now", "hours"),
    [
        ("2026-11-27T02:00", 49),  # a Friday
        ("2026-11-29T01:59", 1 + 1 / 60),
        ("2026-11-29T02:30", 168.5),  # an hour at least
        ("2026-11-29T03:00", 168),
        ("2026-11-29T23:00", 148),
    ],
)
def test_a_run_lasts_until_its_hour_of_the_week_and_an_hour_at_least(now: str, hours: float) -> None:
    begun = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert until("Sun:3", begun) == timedelta(hours=hours)


def test_settings_stand_where_a_deploy_says_nothing() -> None:
    job, _ = _read(["--settings", SETTINGS, *GLUES_OWN])
    assert job == Job.from_json(SETTINGS)
