"""The snippets of docs/query.md, with what the page says is known of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "query.md"
_BLOCK = re.compile(r"(?:^\*(Run|Parsed)\.\*\n\n)?^```(\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """`known`: `Run`, `Parsed`, or empty; `kind`: the language, and the reader where the language does not say it."""

    known: str
    kind: str
    text: str

    @property
    def statements(self) -> list[str]:
        """Of SQL, one by one."""
        return [each.strip() for each in self.text.split(";") if each.strip()]


def snippets() -> list[Snippet]:
    return [Snippet(known, kind, text) for known, kind, text in _BLOCK.findall(PAGE.read_text())]
