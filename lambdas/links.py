"""The row of a link in DynamoDB: its files, its number of downloads, and whether it is still valid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from lambdas.aws import tolerating

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an export."""

    key: str
    rows: int
    size_bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The file name that the recipient sees."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Link:
    """A link to the files of one export's window, for one recipient (a hash; None: all subscribers of the topic).

    `window`: text for people. `max_downloads` counts every part: three parts downloaded once are three.
    """

    id: str
    key_id: str
    export: str
    manifest: str
    parts: tuple[Part, ...]
    recipient: str | None
    created_at: int
    expires_at: int
    max_downloads: int
    title: str
    window: str
    time_zone: str
    rows: int
    complete: bool
    ingested_until: str | None = None
    correction: bool = False
    downloads: int = 0
    revoked: bool = False

    def alive(self, now: float) -> bool:
        return not self.revoked and now < self.expires_at and self.downloads < self.max_downloads

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @classmethod
    def from_item(cls, item: dict[str, Any]) -> Self:
        # DynamoDB's numbers are decimals; all numbers of a link are integers.
        raw = json.loads(json.dumps(_deserialize({"M": item}), default=int))
        return cls(**(raw | {"parts": tuple(Part(**part) for part in raw["parts"])}))

    def to_item(self) -> dict[str, Any]:
        values = asdict(self) | {"parts": [asdict(part) for part in self.parts]}
        return {name: _serialize(value) for name, value in values.items()}


class Links:
    """The links of a deployment; `client` is DynamoDB's."""

    def __init__(self, table: str, client: Any) -> None:
        self._table = table
        self._client = client

    def add(self, link: Link) -> None:
        self._client.put_item(
            TableName=self._table, Item=link.to_item(), ConditionExpression="attribute_not_exists(id)"
        )

    def find(self, link_id: str) -> Link | None:
        answer = self._client.get_item(TableName=self._table, Key={"id": {"S": link_id}}, ConsistentRead=True)
        return Link.from_item(answer["Item"]) if "Item" in answer else None

    def use(self, link_id: str, *, now: float) -> bool:
        """Count one download, if the link still allows one. DynamoDB decides, so two requests at once cannot both be the last."""
        return self._update(
            link_id,
            "SET downloads = downloads + :one",
            "revoked = :false AND expires_at > :now AND downloads < max_downloads",
            {":one": {"N": "1"}, ":false": {"BOOL": False}, ":now": {"N": str(int(now))}},
        )

    def revoke(self, link_id: str) -> bool:
        """Close a link for good; False if there is none."""
        return self._update(link_id, "SET revoked = :true", "attribute_exists(id)", {":true": {"BOOL": True}})

    def all(self) -> Iterator[Link]:
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        for page in pages:
            yield from map(Link.from_item, page["Items"])

    def _update(self, link_id: str, change: str, condition: str, values: dict[str, Any]) -> bool:
        with tolerating("ConditionalCheckFailedException"):
            self._client.update_item(
                TableName=self._table,
                Key={"id": {"S": link_id}},
                UpdateExpression=change,
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
            )
            return True
        return False


def recipient_hash(address: str) -> str:
    """How a row names its recipient, as the table holds no addresses."""
    return hashlib.sha256(address.strip().lower().encode()).hexdigest()[:32]
