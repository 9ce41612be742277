"""Versions of a schema that differ in nothing but their name or a text, so that each has an id of its own."""

from __future__ import annotations

import json
import uuid

from tests.integration.support.engine import TRADE


def versioned(name: str = "Trade") -> str:
    return json.dumps(json.loads(TRADE) | {"name": name, "doc": uuid.uuid4().hex})
