"""The rates that the model multiplies with, each with its source and date; all of them stand in `rates.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("rates.json")


@dataclass(frozen=True, slots=True)
class Rate:
    """One price. `date` is that of the source, or of the look-up where the source has none."""

    usd: float
    per: str
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one region."""

    region: str
    by_name: dict[str, Rate]

    def __getitem__(self, name: str) -> float:
        return self.by_name[name].usd


def rates() -> Rates:
    """The rates of the file."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))
    return Rates(raw["region"], {name: Rate(**each) for name, each in raw["rates"].items()})
