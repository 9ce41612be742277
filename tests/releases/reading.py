"""How this release reads what a release has stored: by kind, from the stored text to plain JSON that says what it means."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from calve.config.job import Job
from calve.config.masking_keys import read_keys
from calve.config.publishing import Export, IcebergRest, Snowflake
from calve.outputs import emitting
from calve.requests import forget, redrive, requests, time_travel
from calve.requests.requests import Pause
from calve.table.position import Ledger, encode_offsets
from calve.table.summary import (
    BACKFILL,
    EMITTED,
    FORGET,
    FORGET_FOUND,
    FORGOTTEN,
    HISTORY,
    PAUSED,
    REDRIVE,
    REDRIVE_RESULT,
    TRAVEL,
    decode,
)
from cli.verify.steps.mask import Tokens
from lambdas.csv_export.delivery import same_definition
from lambdas.followers import CommitBatch
from lambdas.links import Link
from lambdas.publish_states import PublishStates, Target
from lambdas.tokens import Keys, verify


def _plain(value: object) -> Any:
    return json.loads(
        json.dumps(asdict(value) if is_dataclass(value) and not isinstance(value, type) else value)
    )


def _position(text: str) -> Any:
    found = decode(json.loads(text), 7)
    return {
        "offsets": encode_offsets(found.offsets),
        "round": found.round,
        "writer": found.writer,
        "topic": found.topic,
        "dead_letters": _plain(found.dead_letters),
        "redrives": found.redrives,
        "mode": found.mode,
    }


def _emitted(text: str) -> Any:
    found = emitting.Emitted.of({EMITTED: text})
    assert found is not None
    return {"round": found.round, "to": encode_offsets(found.offsets)}


def _masking(text: str) -> Any:
    """The tokens and the key that seals."""
    with patch.dict(os.environ, {"MASKING": text}):
        keys = read_keys("env:MASKING")
    return [[Tokens(keys).token(n, b"ada@example.com"), keys[n].seal.hex()] for n in range(len(keys))]


def _link(text: str) -> Any:
    raw = json.loads(text)
    return _plain(verify(Keys.parse(raw["keys"]), raw["token"], now=0))


def _manifest(text: str) -> Any:
    """Whether it is told that the export of the same settings has made it: else an upgrade would mail all of them again."""
    manifest = json.loads(text)
    return same_definition(manifest, Export.from_json(json.dumps(manifest["export"])))


def _state(text: str) -> Any:
    return _plain(PublishStates("states", _OneItem(json.loads(text))).find(Target.SNOWFLAKE, "trading.users"))


class _OneItem:
    """DynamoDB, as far as one row is read."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def get_item(self, **_: Any) -> Any:
        return {"Item": self._item}


def _commits(text: str) -> Any:
    """The tables that a message in the queue of commits tells of."""
    batch = CommitBatch.of({"Records": [{"messageId": "1", "body": text}]})
    return [[str(table) for table in batch.about], batch.unread]


READERS: dict[str, Callable[[str], Any]] = {
    "backfill_request": lambda text: _plain(time_travel.BackfillRequest.pending({BACKFILL: text})),
    "commit_message": _commits,
    "emitted": _emitted,
    "export": lambda text: _plain(Export.from_json(text)),
    "export_manifest": _manifest,
    "forget_entries": lambda text: [_plain(each) for each in forget.Entry.all({FORGOTTEN: text})],
    "forget_found": lambda text: _plain(forget.Found.of({FORGET_FOUND: text}, "f2")),
    "forget_request": lambda text: _plain(forget.Request.pending({FORGET: text})),
    "history": lambda text: _plain(requests.Entry.of({f"{HISTORY}h1": text}, "h1")),
    "iceberg_rest": lambda text: _plain(IcebergRest.from_json(text)),
    "job": lambda text: _plain(Job.from_json(text)),
    "ledger": lambda text: _plain(Ledger.from_json(text)),
    "link": _link,
    "link_row": lambda text: _plain(Link.from_item(json.loads(text))),
    "masking": _masking,
    "pause": lambda text: _plain(Pause.of({PAUSED: text}, datetime(2026, 1, 1, tzinfo=UTC))),
    "position": _position,
    "publish_state": _state,
    "redrive_request": lambda text: _plain(redrive.Request.pending({REDRIVE: text})),
    "redrive_result": lambda text: _plain(redrive.Result.of({REDRIVE_RESULT: text}, "r1")),
    "snowflake": lambda text: _plain(Snowflake.from_json(text)),
    "travel_request": lambda text: _plain(time_travel.RollbackRequest.pending({TRAVEL: text})),
}
