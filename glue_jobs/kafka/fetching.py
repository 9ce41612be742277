"""Fetch exactly the committed records of offset ranges, as `Records`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from kafka.errors import KafkaError, LeaderNotAvailableError, OffsetOutOfRangeError, for_code
from kafka.future import Future
from kafka.protocol.consumer import FetchRequest

from calve.errors import Suspended
from calve.table.position import Offsets
from glue_jobs.kafka.batches import Batches, Span
from glue_jobs.kafka.client import Client, Settings, answered, client_of, drop_client
from glue_jobs.kafka.connection import told
from glue_jobs.kafka.records import Records

CHUNK_BYTES = 4_000_000
"""The default size of a chunk."""
MAX_WAIT_MS = 20
"""A short wait: the records exist already. If the broker does not have all of them yet, the request is sent again."""
READ_COMMITTED = 1
NO_SESSION = -1
OLDEST_VERSION = 4
"""The first version of the fetch request with transactions. From 13 on, the broker checks the topic id."""
FetchTopic = FetchRequest.FetchTopic


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, to) of a partition."""

    partition: int
    start: int
    to: int


def planned(start: Offsets, to: Offsets, tasks: int) -> list[tuple[Range, ...]]:
    """Split the offsets into at most `tasks` parts of equal size. Partitions are split only where a part ends."""
    total = sum(to[p] - o for p, o in start.items())
    left = share = -(-total // tasks)
    parts: list[list[Range]] = [[]]
    for partition, at in sorted(start.items()):
        while at < to[partition]:
            if not left:
                parts.append([])
                left = share
            taken = min(to[partition] - at, left)
            parts[-1].append(Range(partition, at, at + taken))
            at, left = at + taken, left - taken
    return [tuple(part) for part in parts if part]


def fetch(
    settings: Settings, topic: str, topic_id: str, ranges: Sequence[Range], chunk_bytes: int
) -> Iterator[Records]:
    """The committed records of ranges of different partitions, in order per partition. `to` is at most the last stable offset.

    The next response arrives while chunks are processed. Memory: two responses of `chunk_bytes` (or of one larger batch),
    one of them twice while it is parsed, and one inflated chunk (`Batches.records`).
    Uncompressed chunks point into their response and keep it in memory.

    Raises Retryable: the cluster does not respond, or sent nothing in time; the topic does not exist. Suspended:
    `topic_recreated`, `offsets_expired`, `topic_forbidden`, `corrupt_batch`, `message_format`. Fatal: the cluster's
    certificate is wrong, or it does not support the authentication.
    """
    spans = (Span(topic, each.partition, each.start, each.to) for each in ranges if each.to > each.start)
    reader = _Reader(settings, topic, topic_id, chunk_bytes, {span.partition: span for span in spans})
    while reader.ahead:
        batches = reader.next()
        reader.ask_ahead()
        for each in batches:
            yield from each.records(chunk_bytes)


@dataclass(slots=True)
class _Reader:
    """ahead: the rest to read by partition, in this order. asked: a request without its response, and its client."""

    settings: Settings
    topic: str
    topic_id: str
    chunk_bytes: int
    ahead: dict[int, Span]
    asked: tuple[Client, Future] | None = None

    def next(self) -> list[Batches]:
        """The batches of the next response that advances a partition."""
        servers = self.settings.properties["bootstrap_servers"]

        def attempt() -> list[Batches]:
            (client, asked), self.asked = self.asked or self._ask(), None
            return self._taken(client.answer(asked))

        def explained(error: KafkaError) -> str:
            client_of(self.settings).forget_leaders(self.topic)
            return told(error, self.topic, servers)

        return answered(attempt, explained, servers, lambda: drop_client(self.settings))

    def ask_ahead(self) -> None:
        with suppress(KafkaError):  # asked again once it is needed
            self.asked = self._ask() if self.ahead else None

    def _ask(self) -> tuple[Client, Future]:
        """Request data of the next partition, and of all others with the same leader.

        Raises KafkaError: the leader is unknown. Suspended: `topic_recreated`.
        """
        topic_id = uuid_of(self.topic_id)
        client = client_of(self.settings)
        leaders = client.leaders(self.topic, topic_id)
        if not leaders.are_of(topic_id):
            why = f"topic {self.topic} is no longer the one with the id {self.topic_id}, which was read"
            raise Suspended("topic_recreated", why)
        node, _ = leaders.of.get(next(iter(self.ahead)), (None, 0))
        if node is None:
            raise LeaderNotAvailableError(self.topic)
        wanted = [
            FetchTopic.FetchPartition(
                partition=partition,
                current_leader_epoch=leaders.of[partition][1],
                fetch_offset=span.start,
                partition_max_bytes=self.chunk_bytes,
            )
            for partition, span in self.ahead.items()
            if partition in leaders.of and leaders.of[partition][0] == node
        ]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self.chunk_bytes,
            isolation_level=READ_COMMITTED,
            session_epoch=NO_SESSION,
            topics=[FetchTopic(topic=self.topic, topic_id=topic_id, partitions=wanted)],
            min_version=OLDEST_VERSION,
        )
        return client, client.ask(node, request)

    def _taken(self, answer: Any) -> list[Batches]:
        """The batches that advance a partition. A broker may leave out partitions, or send less than one batch of them.

        Raises KafkaError: the first error in the response; nothing of it is used. Retryable, Suspended: as `Batches.of`.
        """
        partitions = [each for topic in answer.responses for each in topic.partitions]
        for code in (answer.error_code, *(each.error_code for each in partitions)):
            if code and code != OffsetOutOfRangeError.errno:
                raise for_code(code)(self.topic)
        found = []
        for each in partitions:
            span = self.ahead[each.partition_index]
            if each.error_code:
                why = f"topic {self.topic} no longer holds offset {span.start} of partition {span.partition}"
                raise Suspended("offsets_expired", why)
            aborted = [(one.producer_id, one.first_offset) for one in each.aborted_transactions or ()]
            batches = Batches.of(span, each.records or b"", aborted)
            if batches.next_offset == span.start:
                continue
            found.append(batches)
            self.ahead[span.partition] = replace(span, start=batches.next_offset)
            if batches.next_offset >= span.to:
                del self.ahead[span.partition]
        return found


def uuid_of(topic_id: str) -> UUID:
    """Parse a topic id: the 16 bytes in base 64, without padding."""
    return UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))
