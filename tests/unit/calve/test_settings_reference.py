"""docs/configuration.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calve.job import Table
from calve.settings import load, notation
from calve.settings.model import SECTIONS, Section, TableOptions
from calve.settings.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_the_one_that_the_model_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference()


@pytest.mark.parametrize("section", SECTIONS.values())
def test_every_key_has_its_sentence(section: type[Section]) -> None:
    assert section.__doc__
    assert [key for key, field in section.model_fields.items() if not field.description] == []


def test_the_example_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example
    path = tmp_path / "calve.yaml"
    path.write_text(example[1], encoding="utf-8")
    (job,) = load(path)
    assert [table.name for table in job.tables] == ["stock_trades", "users"]


def test_the_defaults_on_the_page_are_those_of_a_table() -> None:
    descriptions = {key: str(field.description) for key, field in TableOptions.model_fields.items()}
    written = {key: re.findall(r"Default:\s+`(.*)`", text)[0] for key, text in descriptions.items()}
    table = Table("a", "t")
    assert written == {
        "freshness": "60s",
        "flush_size": "250MB",
        "partition_flush_size": "300MB",
        "start": table.start.at,
        "on_error": table.on_error,
        "on_data_loss": table.on_data_loss,
        "gaps": table.gaps,
        "format_version": str(table.format_version),
    }
    assert notation.seconds(written["freshness"]) == table.freshness_s
    assert notation.size_bytes(written["flush_size"]) == table.flush_bytes
    assert notation.size_bytes(written["partition_flush_size"]) == table.partition_flush_bytes
