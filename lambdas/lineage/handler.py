"""Sends a table's lineage when it changes, and the table's new rows at most once an hour (ADR 83).

Three functions: `feed` follows commits, `reconcile` looks at every table, `handle` applies a deploy or a delete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import boto3
import requests
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from botocore.config import Config
from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider
from openlineage.client.transport.http_common import DEFAULT_RETRY_CONFIG

from calve import http_client
from calve.config.publishing import OpenLineage
from calve.errors import CalveError, Fatal, Retryable
from calve.names import TableName
from calve.outputs.metrics import LINEAGE_FAILED, LINEAGE_FOLLOWED, LINEAGE_LAG
from calve.secrets import read_secret, value_of
from lambdas.custom_resource import handler_of
from lambdas.followers import Head, Outcome, Published, Words, current, deploy, functions_of
from lambdas.function import NAMESPACE
from lambdas.lineage.events import Described, Glue
from lambdas.publish_states import Clock, PublishState, PublishStates, State, Target, leased, now_ms

TARGET = Target.OPENLINEAGE
LEASE_MS = 310_000
"""Longer than a function may run."""
EVERY_MS = 3_600_000
"""Between two events of a table whose lineage is the same."""
SEND = "send"
RETRY = DEFAULT_RETRY_CONFIG | {"total": 2, "read": 2, "connect": 2}
TIMEOUT_S = 5.0

Send = Callable[[Sequence[RunEvent]], None]
"""Raises Retryable: the receiver does not answer. Fatal: it refuses the events."""


def sender(settings: OpenLineage) -> Send:
    """Sends events to the configured receiver. Raises ConfigError, Retryable: as `read_secret`."""
    auth = TokenProvider({})
    if settings.secret:
        key = value_of(read_secret(settings.secret), "api_key", settings.secret)
        auth = ApiKeyTokenProvider({"apiKey": key})
    session = requests.Session()
    session.max_redirects = 0  # a page that asks for a login is no receiver
    base = http_client.checked(settings.url, "publish.openlineage.url")
    transport = HttpTransport(
        HttpConfig(
            f"{base}/", settings.endpoint.lstrip("/"), TIMEOUT_S, auth=auth, session=session, retry=RETRY
        )
    )

    def send(events: Sequence[RunEvent]) -> None:
        try:
            for each in events:
                transport.emit(each)
        except requests.HTTPError as error:
            status = 0 if error.response is None else error.response.status_code
            kind = Retryable if status == 429 or status >= 500 else Fatal
            fix = "correct publish.openlineage in calve.yaml, or the key in its secret"
            raise kind(f"{http_client.origin(base)} refuses the events: HTTP {status}", fix=fix) from None
        except requests.TooManyRedirects:
            fix = "set publish.openlineage.url and endpoint to the place that takes events"
            raise Fatal(f"{http_client.origin(base)} redirects to another address", fix=fix) from None
        except requests.RequestException as error:
            why = f"{http_client.origin(base)} does not answer: {type(error).__name__}"
            raise Retryable(why) from None

    return send


@dataclass(frozen=True, slots=True)
class LineageSync:
    """Keeps a receiver of OpenLineage events equal to the lake. glue, s3: clients. patience_s: the longest wait for a lease."""

    glue: Any
    s3: Any
    states: PublishStates
    send: Send
    place: Glue
    receiver: OpenLineage
    target: Target = TARGET
    patience_s: float = 10.0
    clock: Clock = field(default=now_ms)

    def table(self, name: TableName, *, published: bool) -> Outcome:
        """Send events of a table if they are due. A receiver keeps the events of a table that is not published any more.

        Raises:
            Retryable: a system does not answer, or another function has the lease. Fatal: the receiver refuses.
        """
        with leased(self.states, TARGET, str(name), LEASE_MS, self.patience_s, self.clock) as lease:
            row = self.states.find(TARGET, str(name)) or PublishState(
                TARGET, str(name), State.PENDING, self.clock()
            )
            if not published:
                self.states.remove(TARGET, row.table, lease.holder)
                return Outcome(row.table, State.PENDING)
            try:
                return self._sent(name, row, lease.holder)
            except CalveError as error:
                reason = " ".join(error.message.split())
                self.states.put(row.become(State.FAILED, self.clock(), reason), lease.holder)
                raise

    def _sent(self, name: TableName, row: PublishState, holder: str) -> Outcome:
        there = current(self.glue, self.s3, name)
        described = Described.of(name, there[1], self.place, self.receiver) if there else None
        if there is None or described is None or (row.sent is None and described.is_empty):
            self.states.put(row.become(State.PENDING, self.clock()), holder)
            return Outcome(row.table, State.PENDING)
        wanted, _ = there
        if not self._is_due(row, wanted, described):
            if row.state is not State.SYNCED:
                self.states.put(row.become(State.SYNCED, self.clock()), holder)
            return Outcome(row.table, State.SYNCED)
        self.send(described.events(row.snapshot_id if row.uuid == wanted.uuid else None))
        now = self.clock()
        lag_s = None if wanted.committed_ms is None else max(0, now - wanted.committed_ms) / 1000
        shown = row.become(
            State.SYNCED,
            now,
            uuid=wanted.uuid,
            metadata_location=wanted.metadata_location,
            snapshot_id=str(wanted.snapshot_id),
            lag_s=lag_s,
            sent=described.digest,
            sent_ms=now,
        )
        self.states.put(shown, holder)
        return Outcome(row.table, State.SYNCED, (SEND,), lag_s)

    def _is_due(self, row: PublishState, wanted: Head, described: Described) -> bool:
        if (row.uuid, row.sent) != (wanted.uuid, described.digest) or row.sent_ms is None:
            return True
        has_new = str(wanted.snapshot_id) != row.snapshot_id
        return has_new and self.clock() - row.sent_ms >= EVERY_MS


SERVICE = "lineage"
CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    """New tables become pending. Tables that are no longer published are forgotten."""
    # A crashed function holds its table's lease that long: a slow delete is better than a failed one.
    sync = replace(_sync(request.resource_properties["StatesTable"]), patience_s=LEASE_MS / 1000 + 10)
    deploy(sync, request, _client("s3"))


@cache
def _sync(states: str) -> LineageSync:
    def send(events: Sequence[RunEvent]) -> None:
        _sender()(events)  # a delete needs no secret

    place = Glue(os.environ["AWS_REGION"], os.environ["ACCOUNT"])
    clients = _client("glue"), _client("s3"), PublishStates(states, _client("dynamodb"))
    return LineageSync(*clients, send, place, _settings())


@cache
def _sender() -> Send:
    return sender(_settings())


def _settings() -> OpenLineage:
    return OpenLineage.from_json(os.environ["LINEAGE"])


@cache
def _published() -> Published:
    return Published.read(_client("s3"), os.environ["PUBLISHED_FILE"])


@cache
def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)


feed, reconcile = functions_of(
    Words("lineage", "sent", LINEAGE_FOLLOWED, LINEAGE_LAG, LINEAGE_FAILED),
    logger,
    tracer,
    metrics,
    follower=lambda: _sync(os.environ["STATES_TABLE"]),
    published=_published,
    forget=_sender.cache_clear,
)
handle = handler_of(
    _act,
    identify=lambda properties: f"{properties['Deployment']}-{TARGET}",
    logger=logger,
    tracer=tracer,
    failed="lineage.not_deployed",
    done="lineage.deployed",
)
