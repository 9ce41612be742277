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
from calve.settings.entries.deploy import AlertsSection, JobSection
from calve.settings.entries.publish import CsvSection, ExportSection, LinkSection
from calve.settings.entries.tables import BudgetSection, TableOptions
from calve.settings.fields import Section
from calve.settings.model import SECTIONS
from tests.configuration_page import PAGE, page


def test_the_page_is_the_one_that_the_model_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("section", SECTIONS.values())
def test_every_key_has_its_sentence(section: type[Section]) -> None:
    assert section.__doc__
    assert [key for key, field in section.model_fields.items() if not field.description] == []


def test_the_example_of_the_page_can_be_deployed(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example
    path = tmp_path / "calve.yaml"
    path.write_text(example[1], encoding="utf-8")
    deployed = load_deployment(path)
    assert [table.name for table in deployed.jobs[0].settings.tables] == ["stock_trades", "users"]
    assert [export.name for export in deployed.exports] == ["weekly_trades"]


def test_the_defaults_on_the_page_are_those_of_a_table() -> None:
    descriptions = {key: str(field.description) for key, field in TableOptions.model_fields.items()}
    defaults = {
        key: found[0]
        for key, text in descriptions.items()
        if (found := re.findall(r"Default:\s+`(.*)`", text))
    }
    table = Table("a", "t")
    assert {key for key in descriptions if key not in defaults} == {"owner"}
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
    given = written(BudgetSection)
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
    assert written(JobSection) | {"time_zone": "UTC"} == {
        "worker": job.worker,
        "run": "continuous",
        "time_zone": job.time_zone,
        "maintenance_window": job.maintenance_window,
    }
    assert written(AlertsSection) == {"lag": str(alerts.lag_records), "restarts": str(alerts.restarts)}
    found = written(ExportSection)
    assert notation.seconds(found.pop("wait")) == export.wait_s
    assert found.pop("keep") == f"{export.keep_days}d"
    assert found.pop("recheck_windows") == str(export.recheck_windows)
    assert found == {"time_zone": "UTC", "window": export.window, "channel": export.channel}
    assert written(LinkSection) == {
        "days": str(export.link_days),
        "max_downloads": str(export.max_downloads),
    }
    assert written(CsvSection) == {key: str(value).lower() for key, value in asdict(export.csv).items()}


def written(section: type[Section]) -> dict[str, str]:
    """Defaults that the page gives as one literal."""
    texts = {key: " ".join(str(field.description).split()) for key, field in section.model_fields.items()}
    return {
        key: found[1] for key, text in texts.items() if (found := re.search(r"Default: `([^`]*)`$", text))
    }
