"""Kafka for the commands: the state of topics now, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import ConfigResource, OffsetSpec

from calve.config.job import Job, Kafka
from calve.names import database_for_cluster
from calve.secrets import read_secret
from calve.table.position import Offsets, TopicKey
from calve.table.protocol import TopicState
from lambdas.kafka_client import TIMEOUT_S, KafkaClient, properties_of


class Cluster(KafkaClient):
    """One cluster; no question waits longer than `patience_s`."""

    def __init__(self, kafka: Kafka, region: str, patience_s: float = TIMEOUT_S) -> None:
        super().__init__(kafka.bootstrap_servers, client_properties(kafka, region), patience_s)

    def topic_names(self) -> list[str]:
        """All topics except Kafka's own, sorted."""
        with self._errors():
            self._result(self._admin.describe_cluster(request_timeout=self._patience_s))
            found = self._admin.list_topics(timeout=self._patience_s).topics
        return sorted(name for name in found if not name.startswith("__"))

    def topics(self, names: set[str]) -> dict[str, TopicState]:
        """Topics by name, without those that do not exist.

        Raises:
            Retryable: the cluster does not answer.
            Fatal: it refuses these credentials.
        """
        cluster = self.id
        if not names:
            return {}
        with self._errors():
            descriptions = self._admin.describe_topics(
                TopicCollection(sorted(names)), request_timeout=self._patience_s
            )
            found: dict[str, Any] = {}
            for name, future in descriptions.items():
                try:
                    found[name] = self._result(future)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
            partitions = [TopicPartition(name, each.id) for name in found for each in found[name].partitions]
            starts = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
            ends = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {
            name: TopicState(
                TopicKey(cluster, _text(each.topic_id)), name, starts.get(name, {}), ends.get(name, {})
            )
            for name, each in found.items()
        }

    def oldest_records(self, wanted: Mapping[str, Offsets]) -> dict[str, float | None]:
        """The oldest timestamp, in seconds since the epoch, among the first records at or after these offsets of each topic.

        None if no partition holds such a record: only transaction markers are left. A topic is left out if one of its partitions
        does not answer in time.
        """
        oldest: dict[str, float | None] = dict.fromkeys(wanted)
        silent = {(topic, p) for topic, offsets in wanted.items() for p in offsets}
        for record in self._read(wanted, at_most=1):
            place = (str(record.topic()), int(record.partition() or 0))
            silent.discard(place)
            if record.error() is None:
                seconds, known = record.timestamp()[1] / 1000, oldest[place[0]]
                oldest[place[0]] = seconds if known is None else min(seconds, known)
        topics = {topic for topic, _ in silent}
        return {topic: found for topic, found in oldest.items() if topic not in topics}

    def newest_values(self, topics: Iterable[TopicState], at_most: int) -> dict[str, list[bytes]]:
        """Values of the newest records of each topic, at most so many of a partition, without tombstones."""
        wanted = {
            each.name: {
                p: max(each.log_start[p], end - at_most)
                for p, end in each.end.items()
                if end > each.log_start[p]
            }
            for each in topics
        }
        found: dict[str, list[bytes]] = {topic: [] for topic in wanted}
        for record in self._read(wanted, at_most):
            value = record.value()
            if record.error() is None and value is not None:
                found[str(record.topic())].append(value)
        return found

    def _read(self, wanted: Mapping[str, Offsets], at_most: int) -> Iterator[Message]:
        """Records from these offsets, so many of a partition; the last one of a partition is an error at its end.

        It ends early if the cluster does not answer in time.
        """
        left = {(topic, p): at_most for topic, offsets in wanted.items() for p in offsets}
        if not left:
            return
        consumer = Consumer(
            self._properties
            | {
                "group.id": "calve-status",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": 65_536,
                "queued.max.messages.kbytes": 1_024,
            }
        )
        deadline = time.monotonic() + self._patience_s
        try:
            with self._errors():
                consumer.assign(
                    [TopicPartition(t, p, o) for t, offsets in wanted.items() for p, o in offsets.items()]
                )
                while left and time.monotonic() < deadline:
                    record = consumer.poll(0.2)
                    if record is None:
                        continue
                    place = (str(record.topic()), int(record.partition() or 0))
                    if place not in left:
                        continue
                    left[place] -= 1
                    if record.error() is not None or not left[place]:
                        del left[place]
                        consumer.incremental_unassign([TopicPartition(*place)])
                    yield record
        finally:
            consumer.close()

    def offsets_at(self, topic: TopicState, moments: Mapping[int, int]) -> Offsets:
        """The first offset with a timestamp, in milliseconds, at or after that of each partition; the end if there is none."""
        wanted = {
            TopicPartition(topic.name, partition): OffsetSpec.for_timestamp(moment)
            for partition, moment in moments.items()
        }
        with self._errors():
            found = self._listed(wanted).get(topic.name, {})
        return {
            partition: offset if offset >= 0 else topic.end[partition] for partition, offset in found.items()
        }

    def group_offsets(self, group: str, topic: str) -> Offsets:
        """The next offsets that a consumer group has noted of a topic; empty if there are none."""
        asked = ConsumerGroupTopicPartitions(group)
        with self._errors():
            answer = self._admin.list_consumer_group_offsets([asked], request_timeout=self._patience_s)
            found = self._result(answer[group]).topic_partitions
        return {each.partition: each.offset for each in found if each.topic == topic and each.offset >= 0}

    def members(self, group: str) -> int:
        """How many consumers a group has now."""
        with self._errors():
            answer = self._admin.describe_consumer_groups([group], request_timeout=self._patience_s)
            return len(self._result(answer[group]).members)

    def is_compacted(self, topic: str) -> bool:
        """Whether the broker may delete records that newer ones with the same key replace."""
        return "compact" in self.setting(topic, "cleanup.policy")

    def setting(self, topic: str, name: str) -> str:
        """The value of a topic's setting. Raises Retryable: the cluster does not answer."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with self._errors():
            answer = self._admin.describe_configs([resource], request_timeout=self._patience_s)
            return str(self._result(answer[resource])[name].value)

    def _offsets(self, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[str, Offsets]:
        return self._listed(dict.fromkeys(partitions, spec))

    def _listed(self, wanted: dict[TopicPartition, OffsetSpec]) -> dict[str, Offsets]:
        answer = self._admin.list_offsets(
            wanted,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._patience_s,
        )
        found: dict[str, Offsets] = {}
        for place, future in answer.items():
            found.setdefault(place.topic, {})[place.partition] = self._result(future).offset
        return found


def cluster_database(job: Job, patience_s: float = TIMEOUT_S) -> str | None:
    """The database named after the cluster under `namespace: cluster_id`, else None without a request."""
    if job.lake.namespace != "cluster_id":
        return None
    return database_for_cluster(Cluster(job.kafka, job.lake.region, patience_s).id)


def client_properties(kafka: Kafka, region: str) -> dict[str, Any]:
    """The properties of every librdkafka client of the commands; `region`: that of an MSK cluster.

    Failures come as errors; librdkafka's own lines on stderr would only break the display.
    """
    secret = read_secret(kafka.secret) if kafka.secret else None
    return {"log_level": 0, **properties_of(kafka, secret, region)}


def _text(uuid: Uuid) -> str:
    """A topic id in base64url, as Java writes it; librdkafka writes plain base64."""
    return str(uuid).translate(str.maketrans("+/", "-_"))
