"""Each configuration that these tests load is also held against the JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from calve import settings
from calve.settings.model import Configuration, configuration, json_schema
from calve.settings.problems import Problem

CHECKER = Draft7Validator(json_schema())


@pytest.fixture(autouse=True)
def editors_accept_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(values: Mapping[str, Any], folder: Path) -> tuple[Configuration | None, list[Problem]]:
        found = configuration(values, folder)
        assert found[0] is None or not [each.message for each in CHECKER.iter_errors(values)]
        return found

    monkeypatch.setattr(settings, "configuration", both)
