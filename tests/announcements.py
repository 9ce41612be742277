"""The schemas of announcements, as docs/announcements has them, and whether details are what they promise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

PAGE = Path(__file__).parents[1] / "docs" / "announcements.md"
SCHEMAS = {each.stem: json.loads(each.read_text()) for each in PAGE.with_suffix("").glob("*.json")}


def assert_as_documented(kind: str, detail: Mapping[str, Any]) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])
    Draft202012Validator(SCHEMAS[kind]).validate(json.loads(json.dumps(detail)))
