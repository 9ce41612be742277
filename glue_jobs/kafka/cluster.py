"""Kafka as the job sees it: what a topic looks like now, by Kafka's Java AdminClient, which comes with Spark's sink."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from calve.errors import Fatal, Retryable, Suspended
from calve.job import Emit, Kafka, Start
from calve.position import Offsets, TopicKey
from calve.protocol import TopicState
from calve.topic_errors import topic_forbidden, topic_missing
from glue_jobs.java import Packages
from glue_jobs.kafka.connection import Connection

REFUSED = ("AuthenticationException", "AuthorizationException", "ConfigException")
"""How the names of Kafka's exceptions end that no repetition cures."""

TOLD_OFFSET = re.compile(r"-(\d+)=ListOffsetsResultInfo\(offset=(-?\d+)")
"""Number and offset of a partition, as Java writes a map of what Kafka answers."""


class Cluster:
    """One cluster with one key at a time; safe to share between threads. `close` it at the end of the job."""

    def __init__(self, spark: SparkSession, kafka: Kafka) -> None:
        self._jvm = Packages(spark._jvm)
        self.connection = Connection(self._jvm, kafka)
        self._ensured: set[str] = set()
        self._where = kafka.bootstrap_servers
        self._ask(self.connection.admin)
        kafka_classes = self._jvm.org.apache.kafka
        admin = kafka_classes.clients.admin
        self._partition = kafka_classes.common.TopicPartition
        self._specs = admin.OffsetSpec
        self._questions: dict[tuple[str, int], tuple[Any, Any]] = {}
        isolation = kafka_classes.common.IsolationLevel
        self._committed = admin.ListOffsetsOptions(isolation.READ_COMMITTED)
        self._uncommitted = admin.ListOffsetsOptions(isolation.READ_UNCOMMITTED)

    @property
    def id(self) -> str:
        """The cluster id, asked anew each time: a re-created cluster may answer at the same address."""
        return str(self._ask(lambda: self.connection.admin().describeCluster().clusterId().get()))

    def names(self) -> list[str]:
        """The topics of the cluster that these credentials may see, in one request.

        Raises:
            Retryable, Fatal: as `state`.
        """
        found = self._ask(lambda: self.connection.admin().listTopics().names().get())
        return str(
            self._jvm.java.lang.String.join("\n", found)
        ).splitlines()  # py4j asks once for each item of a set

    def state(self, topic: str) -> TopicState:
        """The topic as it is now; `end` is the last stable offset.

        Raises:
            Retryable: the topic does not exist yet, or the cluster does not answer.
            Fatal: the cluster refused the credentials.
        """
        asked = math.floor(time.time() * 1000) / 1000
        description = self._describe(topic)
        count = description.partitions().size()
        earliest, latest = self._first_and_last(topic, count)

        def asked_at_once() -> tuple[Any, ...]:
            admin = self.connection.admin()
            return (
                admin.listOffsets(earliest, self._committed).all(),
                admin.listOffsets(latest, self._uncommitted).all(),
                self._configs(topic),
                admin.describeCluster().clusterId(),
            )

        first, arrived, config, cluster = self._ask(asked_at_once, topic)
        log_start, arrived = (self._offsets(topic, count, each.get) for each in (first, arrived))
        policy, cluster_id = self._config(topic, "cleanup.policy", config), self._ask(cluster.get)
        # Asked last: a record that comes between two questions must not look like an open transaction.
        end = self._offsets(topic, count, self._listing(latest))
        return TopicState(
            key=TopicKey(str(cluster_id), str(description.topicId().toString())),
            name=topic,
            log_start=log_start,
            end=end,
            compacted="compact" in policy,
            complete_until=asked if all(end[p] >= offset for p, offset in arrived.items()) else None,
        )

    def first_offsets(self, state: TopicState, start: Start) -> Offsets:
        """Where a topic that was never read begins.

        Raises:
            Suspended: explicit offsets name a partition that does not exist, or that does not hold them (`start_invalid`).
        """
        match start.at:
            case "earliest":
                return dict(state.log_start)
            case "latest":
                return dict(state.end)
            case "timestamp":
                spec = self._specs.forTimestamp(start.timestamp_ms or 0)
                question = self._question(state.name, count := len(state.end), spec)
                found = self._offsets(state.name, count, self._listing(question))
                return {p: min(o, state.end[p]) if o >= 0 else state.end[p] for p, o in found.items()}
            case "offsets":
                held = {p: range(first, state.end[p] + 1) for p, first in state.log_start.items()}
                wrong = {p: o for p, o in start.offsets.items() if o not in held.get(p, ())}
                if wrong:
                    raise Suspended(
                        "start_invalid",
                        f"topic {state.name} does not hold the start offsets {wrong}: it begins at {state.log_start}"
                        f" and ends at {state.end}",
                        fix="correct start.offsets of this table",
                    )
                return state.log_start | start.offsets

    def largest_record(self, topic: str) -> int:
        """Bytes that a batch of records, compressed, has at most in this topic."""
        return int(self._config(topic, "max.message.bytes"))

    def ensure_topic(self, wanted: Emit) -> None:
        """Make a topic where there is none; one that exists is left as it is.

        Raises:
            Suspended: `topic_forbidden`. Retryable: the cluster does not answer.
        """
        if wanted.topic in self._ensured:
            return
        admin = self._jvm.org.apache.kafka.clients.admin
        empty = self._jvm.java.util.Optional.empty()
        topic = admin.NewTopic(wanted.topic, self._jvm.java.util.Optional.of(wanted.partitions), empty)
        config: dict[str, str] = {"cleanup.policy": wanted.cleanup_policy}
        if wanted.retention_ms is not None:
            config["retention.ms"] = str(wanted.retention_ms)
        topic = topic.configs(self._jvm.java.util.HashMap(config))
        topics = self._jvm.java.util.List.of(topic)

        def make() -> None:
            try:
                self.connection.admin().createTopics(topics).all().get()
            except Py4JJavaError as error:
                if _cause(error.java_exception)[0] != "TopicExistsException":
                    raise

        self._ask(make, wanted.topic)
        self._ensured.add(wanted.topic)

    def has_transactions(self, state: TopicState) -> bool:
        """True where a partition remembers a transactional producer: its markers take offsets that hold no record.

        Brokers forget producers that were idle for `producer.id.expiration.ms` (a day by default).
        """
        partitions = self._jvm.java.util.ArrayList([self._partition(state.name, each) for each in state.end])
        answer = self._ask(lambda: self.connection.admin().describeProducers(partitions).all().get())
        return any(
            producer.coordinatorEpoch().isPresent() or producer.currentTransactionStartOffset().isPresent()
            for each in answer.values()
            for producer in each.activeProducers()
        )

    def close(self) -> None:
        self.connection.close()

    def _describe(self, topic: str) -> Any:
        names = self._jvm.java.util.List.of(topic)
        return self._ask(
            lambda: self.connection.admin().describeTopics(names).allTopicNames().get(), topic
        ).get(topic)

    def _config(self, topic: str, name: str, asked: Any = None) -> str:
        """asked: what `_configs` has begun."""
        configs = self._ask((asked or self._ask(lambda: self._configs(topic))).get, topic)
        return str(configs.get(self._resource(topic)).get(name).value())

    def _configs(self, topic: str) -> Any:
        """A topic's configuration, on its way."""
        resources = self._jvm.java.util.List.of(self._resource(topic))
        return self.connection.admin().describeConfigs(resources).all()

    def _resource(self, topic: str) -> Any:
        config = self._jvm.org.apache.kafka.common.config
        return config.ConfigResource(getattr(config, "ConfigResource$Type").TOPIC, topic)

    def _first_and_last(self, topic: str, count: int) -> tuple[Any, Any]:
        """Java's questions for the first and the last offset of each partition, made once for a topic of so many."""
        if (topic, count) not in self._questions:
            specs = (self._specs.earliest(), self._specs.latest())
            first, last = (self._question(topic, count, spec) for spec in specs)
            self._questions[topic, count] = (first, last)
        return self._questions[topic, count]

    def _question(self, topic: str, count: int, spec: Any) -> Any:
        """What is asked of all partitions; Kafka numbers them from 0, without gaps."""
        wanted = self._jvm.java.util.HashMap()
        for number in range(count):
            wanted.put(self._partition(topic, number), spec)
        return wanted

    def _listing(self, question: Any) -> Callable[[], Any]:
        """Asks for committed records' offsets."""
        return lambda: self.connection.admin().listOffsets(question, self._committed).all().get()

    def _offsets(self, topic: str, count: int, answer: Callable[[], Any]) -> Offsets:
        """What `listOffsets` answers, as one text: py4j would ask the JVM twice for each partition, in every round.

        Raises:
            Fatal: the text is not that of Kafka's library as it comes with calve.
        """
        told = str(self._jvm.java.lang.String.valueOf(self._ask(answer, topic)))
        found = {int(partition): int(offset) for partition, offset in TOLD_OFFSET.findall(told)}
        if len(found) != count:
            raise Fatal(
                f"Kafka's Java library tells the offsets of topic {topic} as nobody has foreseen: {told[:200]}",
                fix="run the job with the jars of its release",
            )
        return found

    def require_allowed(self, error: Py4JJavaError, topic: str | None) -> None:
        """Tell by an error whether Kafka forbids a topic; to one who may write none it says that the cluster is forbidden.

        Raises:
            Suspended: `topic_forbidden`.
        """
        if topic and _cause(error.java_exception)[0].endswith("AuthorizationException"):
            raise topic_forbidden(topic, self._where) from None

    def _ask(self, question: Callable[[], Any], topic: str | None = None) -> Any:
        try:
            return question()
        except Py4JJavaError as error:
            kind, text = _cause(error.java_exception)
            if kind == "UnknownTopicOrPartitionException":
                raise topic_missing(topic, self._where) from None
            self.require_allowed(error, topic)
            if kind.endswith("AuthenticationException") and self.connection.refused():
                raise Retryable(
                    f"Kafka at {self._where} refused the key, which was changed a moment ago: {text}"
                ) from None
            if kind.endswith(REFUSED):
                raise Fatal(
                    f"Kafka at {self._where} refused: {kind}: {text}", fix="check kafka.auth in calve.yaml"
                ) from None
            raise Retryable(f"Kafka at {self._where} does not answer: {kind}: {text}") from None


def _cause(error: Any) -> tuple[str, str]:
    """Class of the refusal in a Java exception's chain, else of the innermost one, and the innermost message."""
    chain = [error]
    while (cause := chain[-1].getCause()) is not None:
        chain.append(cause)
    kinds = [str(each.getClass().getSimpleName()) for each in chain]
    return next((kind for kind in kinds if kind.endswith(REFUSED)), kinds[-1]), str(chain[-1].getMessage())
