"""A batch of messages from `stacks/base/resources.py`: the tables they tell of, and the answer by which some come again."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from calve.names import TableName
from calve.outputs.announcement import table_of


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Ids of messages, by table; `unread`: of those that tell of none, which come again until they are put aside for somebody
    to read.
    """

    about: Mapping[TableName, list[str]]
    unread: list[str]

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        about: dict[TableName, list[str]] = {}
        unread = []
        for message in event["Records"]:
            try:
                about.setdefault(table_of(json.loads(message["body"])["detail"]), []).append(
                    message["messageId"]
                )
            except (ValueError, KeyError, TypeError):
                unread.append(message["messageId"])
        return cls(about, unread)

    def answer(self, again: Collection[TableName]) -> dict[str, Any]:
        """What Lambda is told, where these tables are to be looked at again."""
        ids = [id for table, ids in self.about.items() if table in again for id in ids]
        return {"batchItemFailures": [{"itemIdentifier": id} for id in (*ids, *self.unread)]}
