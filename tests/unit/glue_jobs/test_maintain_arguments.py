"""The maintenance job's arguments, as Glue and as `calve maintain` give them."""

from __future__ import annotations

import pytest

from calve.config.maintenance import Kind
from calve.errors import ConfigError
from cli.run.jobs import KINDS
from glue_jobs.maintain import _read
from tests.unit.glue_jobs.test_ingest_arguments import GLUES_OWN, SETTINGS


def test_a_run_does_what_is_due_unless_it_is_told_otherwise() -> None:
    job, options = _read(["--settings", SETTINGS, "--warehouse", "s3://lake/p", *GLUES_OWN])
    assert (job.lake.warehouse, options.dry_run, options.only) == ("s3://lake/p", False, None)
    _, options = _read(["--settings", SETTINGS, "--dry-run", "--only", "orphans"])
    assert (options.dry_run, options.only) == (True, "orphans")
    with pytest.raises(ConfigError):
        _read(["--settings", "{}"])


def test_the_command_knows_every_kind_of_work() -> None:
    assert set(KINDS) == set(Kind.__args__)  # type: ignore[attr-defined]
