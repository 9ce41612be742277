"""Writes the keys of docs/configuration.md from the model: `python -m tests.configuration_page`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from calve.settings.fields import Section
from calve.settings.model import SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
KEYS = "## Keys\n\n<!-- `python -m tests.configuration_page` writes them from `calve/settings/`. -->\n"


def page() -> str:
    """The page: its text as it is, and the keys as the model has them."""
    text, *_ = PAGE.read_text(encoding="utf-8").partition(KEYS)
    sections = ("\n".join(_section(".".join(path), section)) for path, section in SECTIONS.items())
    return text + "\n".join([KEYS, *(section + "\n" for section in sections)])


def _section(path: str, section: type[Section]) -> Iterator[str]:
    yield f"### `{path}`" if path else "### Top level"
    yield ""
    yield " ".join((section.__doc__ or "").split())
    if not section.model_fields:
        return
    yield ""
    yield "| key | meaning | default |"
    yield "| --- | --- | --- |"
    for key, field in section.keys().items():
        meaning, _, default = " ".join((field.description or "").split()).partition(" Default: ")
        yield f"| `{key}` | {meaning.rstrip('.')} | {'**required**' if field.is_required() else default} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
