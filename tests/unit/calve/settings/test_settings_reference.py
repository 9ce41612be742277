"""docs/configuration.md says what the code does."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from calve.config.deployment import Alerts, JobDeployment
from calve.config.job import Budget, Table
from calve.config.publishing import Export
from calve.settings import load_deployment, notation
from calve.settings.model import SECTIONS
from tests.descriptions import PAGE, PAGE_OF_OTHERS, keys_of


@pytest.mark.parametrize("path", SECTIONS)
def test_the_page_says_what_each_key_means(path: tuple[str, ...]) -> None:
    section, name = SECTIONS[path], ".".join(path)
    listed = keys_of(name)
    if name in PAGE_OF_OTHERS:
        listed |= keys_of(PAGE_OF_OTHERS[name])
    assert listed.keys() == section.keys().keys()
    for key, field in section.keys().items():
        meaning, default = listed[key]
        assert meaning
        assert (default == "**required**") == field.is_required()


def test_the_example_of_the_page_can_be_deployed(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example
    path = tmp_path / "calve.yaml"
    path.write_text(example[1], encoding="utf-8")
    deployed = load_deployment(path)
    assert [table.name for table in deployed.jobs[0].settings.tables] == ["stock_trades", "users"]
    assert [export.name for export in deployed.exports] == ["weekly_trades"]


def test_the_defaults_on_the_page_are_those_of_a_table() -> None:
    defaults = {key: default.strip("`") for key, (_, default) in keys_of("defaults").items() if default}
    del defaults["maintenance"]
    table = Table("a", "t")
    assert keys_of("defaults").keys() - defaults.keys() == {"owner", "maintenance"}
    assert table.owner is None
    assert defaults == {
        "freshness": "60s",
        "flush_size": "250MB",
        "partition_flush_size": "300MB",
        "start": table.start.at,
        "on_error": table.on_error,
        "dead_letter_budget": "{share: 1%, records: 1000, within: 1h}",
        "on_data_loss": table.on_data_loss,
        "gaps": table.gaps,
        "format_version": str(table.format_version),
        "quarantine_new_fields": str(table.quarantine_new_fields).lower(),
        "engine": table.engine,
    }
    assert notation.seconds(defaults["freshness"]) == table.freshness_s
    given = written("defaults.dead_letter_budget")
    assert Budget(
        notation.share(given["share"]), int(given["records"]), notation.seconds(given["within"])
    ) == (table.dead_letter_budget)
    assert notation.size_bytes(defaults["flush_size"]) == table.flush_bytes
    assert notation.size_bytes(defaults["partition_flush_size"]) == table.partition_flush_bytes


def test_the_defaults_on_the_page_are_those_of_a_deployment(tmp_path: Path) -> None:
    path = tmp_path / "calve.yaml"
    path.write_text(
        "name: t\nkafka: {bootstrap_servers: b:1}\nregistry: {url: http://r}\ntables: {a: {topic: t}}\n"
        "exports: {e: {table: a, schedule: rate(1 day), recipients: [a@b.c]}}\n"
    )
    deployed = load_deployment(path)
    (job,), (export,), alerts = deployed.jobs, deployed.exports, deployed.alerts
    assert job == JobDeployment(job.settings)
    assert alerts == Alerts()
    assert export == Export("e", "t", "a", "_kafka.timestamp", "rate(1 day)", ("a@b.c",))
    assert written("jobs.<name>") | {"time_zone": "UTC"} == {
        "count": "1",
        "worker": job.worker,
        "run": "continuous",
        "time_zone": job.time_zone,
        "maintenance_window": job.maintenance_window,
    }
    assert written("alerts") == {"lag": str(alerts.lag_records), "restarts": str(alerts.restarts)}
    found = written("exports.<name>")
    assert notation.seconds(found.pop("wait")) == export.wait_s
    assert found.pop("keep") == f"{export.keep_days}d"
    assert found.pop("recheck_windows") == str(export.recheck_windows)
    assert found == {"time_zone": "UTC", "window": export.window}
    assert written("exports.<name>.link") == {
        "kind": export.link_kind,
        "days": str(export.link_days),
        "max_downloads": str(export.max_downloads),
    }
    assert written("exports.<name>.csv") == {
        key: str(value).lower() for key, value in asdict(export.csv).items()
    }


def written(path: str) -> dict[str, str]:
    """Defaults that the page gives as one literal."""
    found = {key: re.fullmatch(r"`([^`]*)`", default) for key, (_, default) in keys_of(path).items()}
    return {key: literal[1] for key, literal in found.items() if literal}
