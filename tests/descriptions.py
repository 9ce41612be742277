"""What docs/configuration.md says of each key, for editors: `python -m tests.descriptions > calve/settings/descriptions.json`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from calve.settings.model import SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
PAGE_OF_OTHERS = {
    "registry.rotate": "kafka.auth.rotate",
    "tables.<name>": "defaults",
    "tables.<name>.dead_letter_budget": "defaults.dead_letter_budget",
    "tables.<name>.maintenance": "defaults.maintenance",
}
"""A section that takes the keys of another one, too, which the page does not repeat."""
_SEE = re.compile(r"^(?P<before>.*?;? ?)[Ss]ee `(?P<path>[^`]+)`$")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def keys_of(path: str) -> dict[str, tuple[str, str]]:
    """The keys of a section on the page, each with its meaning and its default."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \| (.*) \|$", _part(path), re.MULTILINE)
    return {key: (meaning, default) for key, meaning, default in rows}


def descriptions() -> dict[str, dict[str, str]]:
    """By section and key, the sentence that an editor shows. A key that holds a section has that section's."""
    found: dict[str, dict[str, str]] = {}
    for name in map(".".join, SECTIONS):
        listed = keys_of(PAGE_OF_OTHERS[name]) if name in PAGE_OF_OTHERS else {}
        listed |= keys_of(name)
        found[name] = {key: _sentence(*each) for key, each in listed.items()}
    return found


def _sentence(meaning: str, default: str) -> str:
    if see := _SEE.match(meaning):
        meaning = f"{see['before']}{_introduction(see['path'])}"
    known = f" Default: {default}." if default and default != "**required**" else ""
    return _LINK.sub(r"\1", meaning).rstrip(".") + "." + known


def _introduction(path: str) -> str:
    """The first sentence below the heading."""
    text = " ".join(_part(path).strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z`)])\. ", text)[0]


def _part(path: str) -> str:
    title = f"### `{path}`\n" if path else "### Top level\n"
    return PAGE.read_text(encoding="utf-8").partition(title)[2].partition("\n### ")[0]


if __name__ == "__main__":
    json.dump(descriptions(), sys.stdout, indent=1)
    sys.stdout.write("\n")
