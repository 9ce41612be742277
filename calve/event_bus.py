"""The event bus of an account on AWS: EventBridge's default bus, asked for nothing but to take announcements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from calve.announcement import Announcement
from calve.errors import Retryable

MAX_ENTRIES = 10
MAX_BYTES = 200_000
"""Of a request. EventBridge takes 256 KB."""


class EventBus:
    """boto3 finds credentials, endpoint and proxy as in every other client of AWS."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._client: Any = None

    def send(self, batch: Sequence[Announcement]) -> list[Announcement]:
        """Send what fits into one request (`first_batch`); returns those that were not taken.

        Raises:
            Retryable: none was, for all that is known.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._opened().put_events(Entries=[each.entry() for each in batch])
        except ClientError as error:
            raise Retryable(f"EventBridge in {self._region}: {error.response['Error']['Code']}") from None
        except BotoCoreError as error:
            raise Retryable(f"EventBridge in {self._region}: {type(error).__name__}") from None
        if not answer["FailedEntryCount"]:
            return []
        return [each for each, said in zip(batch, answer["Entries"], strict=True) if said.get("ErrorCode")]

    def _opened(self) -> Any:
        """Used by one thread alone."""
        import boto3
        from botocore.config import Config

        if self._client is None:
            limits = Config(
                connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2}
            )
            self._client = boto3.client("events", region_name=self._region, config=limits)
        return self._client


def first_batch(waiting: Iterable[Announcement]) -> list[Announcement]:
    """The first of what waits, as many as a request takes, and at least one."""
    found: list[Announcement] = []
    size = 0
    for each in waiting:
        size += _size(each)
        if found and (size > MAX_BYTES or len(found) == MAX_ENTRIES):
            break
        found.append(each)
    return found


def _size(announcement: Announcement) -> int:
    return sum(len(text.encode()) for text in announcement.entry().values())
