"""What a mail is about: a manifest that was written, or a window for which there will be no file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from calve.config.export import Export
from calve.errors import Fatal
from lambdas import wording
from lambdas.links import Part

FORMAT = 1
_OWN_FILE = r"([A-Za-z0-9]+)/[A-Za-z0-9_-][A-Za-z0-9._-]*"
"""Run and name of a part, below its manifest's folder."""


@dataclass(frozen=True, slots=True)
class Window:
    """Half open, in the export's zone."""

    start: datetime
    end: datetime
    time_zone: str

    def __str__(self) -> str:
        return wording.window(self.start, self.end, self.time_zone)

    def to_json(self) -> dict[str, str]:
        return {"from": self.start.isoformat(), "to": self.end.isoformat()}

    @classmethod
    def of(cls, raw: dict[str, str], export: Export) -> Self:
        return cls(datetime.fromisoformat(raw["from"]), datetime.fromisoformat(raw["to"]), export.time_zone)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as `csv_export` writes it, as far as a mail needs it."""

    key: str
    export: Export
    window: Window
    rows: int
    parts: tuple[Part, ...]
    complete: bool
    ingested_until: str | None
    correction: bool
    redefined: bool
    created_at: datetime
    snapshot_id: str | None

    @classmethod
    def parse(cls, key: str, text: str) -> Self:
        """Read a manifest.

        Raises:
            Fatal: it is of another format, or names other files than those of one run, in its folder.
        """
        raw: dict[str, Any] = json.loads(text)
        if raw.get("format") != FORMAT:
            raise Fatal(
                f"{key} has format {raw.get('format')}, this release reads {FORMAT}", fix="deploy all stacks"
            )
        export = Export.from_json(json.dumps(raw["export"]))
        parts = tuple(Part(**{name: part[name] for name in Part.__slots__}) for part in raw["parts"])
        if len({_run(key, part) for part in parts}) != 1:
            raise Fatal(f"{key} does not name the files of one run")
        until = raw["ingested_until"]
        return cls(
            key=key,
            export=export,
            window=Window.of(raw["window"], export),
            rows=raw["rows"],
            parts=parts,
            complete=raw["complete"],
            ingested_until=until and wording.moment(datetime.fromisoformat(until), export.time_zone),
            correction=raw["correction"],
            redefined=raw["redefined"],
            created_at=datetime.fromisoformat(raw["created_at"]),
            snapshot_id=raw["snapshot_id"],
        )


def _run(manifest: str, part: Part) -> str:
    folder = manifest.rpartition("/")[0]
    own = re.fullmatch(f"{re.escape(folder)}/{_OWN_FILE}", part.key, re.ASCII)
    if own is None:
        raise Fatal(f"{manifest} names {part.key}, which is no file of its folder")
    return own[1]


@dataclass(frozen=True, slots=True)
class Failure:
    """An export without a file; not `final`, it is tried again. `reason` is for people and one line; it never holds data."""

    export: Export
    window: Window | None
    reason: str
    final: bool

    @classmethod
    def parse(cls, detail: dict[str, Any]) -> Self:
        export = Export.from_json(json.dumps(detail["export"]))
        window = Window.of(detail["window"], export) if detail.get("window") else None
        return cls(export, window, " ".join(str(detail["reason"]).split())[:300], detail["final"])
