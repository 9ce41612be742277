"""What a table no longer has because it was to be kept for a while alone: said by each commit that deletes rows for their age."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from calve.position import Offsets, TopicKey, decode_offsets, encode_offsets
from calve.protocol import Commit

RETAINED = "calve.retained"
"""In the summary of such a commit, and in the properties of the table, where it outlives the snapshot."""


@dataclass(frozen=True, slots=True)
class Retained:
    """Rows whose `column` is before a moment are gone, as far as the offsets below `to` made them.

    before_us: microseconds since epoch. rows: how many went, of this commit and of all before it. A commit says all that earlier
    ones said.
    """

    column: str
    before_us: int
    rows: int
    to: Mapping[TopicKey, Offsets]

    def to_json(self) -> str:
        said = {"column": self.column, "before_us": self.before_us, "rows": self.rows}
        return json.dumps(said | {"to": encode_offsets(self.to)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        return cls(**(raw | {"to": decode_offsets(raw["to"])}))


def retained(ancestors: Iterable[Commit], properties: Mapping[str, str]) -> Retained | None:
    """What a table says: by its history, or where that has expired by its properties; None: no row has left it for its age."""
    oldest = None
    for oldest in ancestors:
        if RETAINED in oldest.summary:
            return Retained.from_json(oldest.summary[RETAINED])
    cut = oldest is not None and oldest.parent is not None
    return Retained.from_json(properties[RETAINED]) if cut and RETAINED in properties else None


def after(
    before: Retained | None, column: str, before_us: int, rows: int, stood: Mapping[str, str]
) -> Retained:
    """What a commit says that deletes so many rows; stood: the summary of the commit that says where the table stands."""
    return Retained(
        column, before_us, rows + (before.rows if before else 0), decode_offsets(stood["calve.to"])
    )
