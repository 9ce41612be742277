"""The functions of the catalog sync against Glue, DynamoDB and a real Iceberg REST catalog, in this process."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from calve.config.publishing import IcebergRest
from calve.names import TableName
from cli.embedded import aws
from cli.embedded.stack import Stack
from lambdas.catalog_sync.catalog import Server
from lambdas.catalog_sync.handler import open_sync
from lambdas.catalog_sync.sync import LEASE_MS, Sync, drop_namespaces, withdraw
from lambdas.followers import Outcome, follow_all
from lambdas.followers import Published as Wanted
from lambdas.publish_states import State, Target, now_ms
from tests.integration.support.servers.gate import Answer, Request
from tests.integration.support.servers.rest_catalogs import (
    CLIENT,
    SCOPE,
    SECRET,
    Poller,
    Published,
    append,
    behind_oauth,
)

EVENTS = 400
CREDENTIALS = json.dumps({"client_id": CLIENT, "client_secret": SECRET})


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def catalog(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    os.environ["CATALOG_CREDENTIALS"] = CREDENTIALS
    with behind_oauth(stack, tmp_path_factory.mktemp("catalog")) as made:
        yield made


@pytest.fixture
def published(catalog: Published, request: pytest.FixtureRequest) -> Published:
    return replace(catalog, database=f"{catalog.database}_{abs(hash(request.node.name)) % 10**6}")


@pytest.fixture
def sync(published: Published) -> Sync:
    name = f"{published.database}-states"
    client = aws.client("dynamodb", published.stack.aws_endpoint)
    keys = {"target": "HASH", "table": "RANGE"}
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
    )
    return opened(published, name)


def opened(published: Published, states: str, **options: Any) -> Sync:
    settings = IcebergRest(published.uri, secret="env:CATALOG_CREDENTIALS", scope=SCOPE)
    made = open_sync(
        settings,
        deployment=published.database,
        states_table=states,
        client=lambda service: aws.client(service, published.stack.aws_endpoint),
    )
    return replace(made, patience_s=60, **options)


def name_of(published: Published, table: str) -> TableName:
    return TableName(published.database, table)


def every(sync: Sync, published: Published) -> list[Outcome]:
    return follow_all(sync, Wanted(published.database, patterns=(".*",), database=published.database))


def failed(outcomes: list[Outcome]) -> list[str]:
    return [each.table for each in outcomes if each.error]


def test_pyiceberg_and_duckdb_read_what_glue_has(published: Published, sync: Sync) -> None:
    table = published.table("trades")
    for rows in (3, 5):
        append(table, rows)
        sync.table(name_of(published, "trades"), published=True)
        found = published.reader().load_table((published.database, "trades"))
        assert found.metadata_location == table.metadata_location
        assert len(found.scan().to_arrow()) == len(table.scan().to_arrow())
        counted = published.duckdb().sql(
            f"select count(*), sum(n) from published.{published.database}.trades"
        )
        arrow = table.scan().to_arrow()["n"].to_pylist()
        assert counted.fetchone() == (len(arrow), sum(arrow))


def test_tables_that_need_the_same_new_namespace_at_once_are_all_registered(
    published: Published, sync: Sync
) -> None:
    """Iceberg's server answers all but one of those who make a namespace at once with HTTP 500."""
    names = [name_of(published, f"t{n}") for n in range(6)]
    for each in names:
        published.table(each.table)
    together = threading.Barrier(len(names), timeout=60)

    def wait(request: Request) -> Answer:
        if request.method == "POST" and request.path.endswith("/namespaces"):
            together.wait()
        return published.gate.pass_on(request)

    published.gate.instead = wait
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            outcomes = list(pool.map(lambda each: sync.table(each, published=True), names))
    finally:
        published.gate.instead = published.gate.pass_on
    assert [each.state for each in outcomes] == [State.SYNCED] * len(names)


def test_a_rollback_is_followed_and_never_mistaken_for_older_metadata(
    published: Published, sync: Sync
) -> None:
    table = published.table("trades")
    append(table)
    sync.table(name_of(published, "trades"), published=True)
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    sync.table(name_of(published, "trades"), published=True)
    found = published.reader().load_table((published.database, "trades"))
    assert (found.metadata_location, found.metadata.current_snapshot_id) == (table.metadata_location, first)


@pytest.mark.full
def test_events_doubled_out_of_order_and_lost_move_the_catalog_forwards_alone(
    published: Published, sync: Sync
) -> None:
    table = published.table("trades")
    name = name_of(published, "trades")
    sync.table(name, published=True)
    told = threading.Semaphore(0)
    ends = threading.Event()
    chance = random.Random(7)

    def function(number: int) -> None:
        mine = opened(published, f"{published.database}-states")
        while not ends.is_set():
            if told.acquire(timeout=0.2):
                mine.table(name, published=True)

    poller = Poller(published, published.database, "trades")
    functions = [threading.Thread(target=function, args=(number,)) for number in range(3)]
    with poller.polling():
        for each in functions:
            each.start()
        for _ in range(EVENTS // 4):
            append(table, 1)
            for _ in range(chance.choice((0, 1, 2, 8))):  # lost, once, doubled, all over again
                told.release()
        while told.acquire(blocking=False):
            pass
        ends.set()
        for each in functions:
            each.join()
        every(sync, published)
    assert (poller.missing, poller.failed) == (0, [])
    assert len(set(poller.seen)) > 10
    assert all(before <= after for before, after in pairwise(poller.seen))
    found = published.reader().load_table((published.database, "trades"))
    assert found.metadata_location == table.refresh().metadata_location


def test_killed_at_any_request_it_ends_the_same(
    published: Published, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function dies before, or right after, each request in turn; the next one finds a lease that has ended."""
    name = name_of(published, "trades")
    ask, left, clock = Server.ask, [0], [now_ms()]
    after = [False]

    def mortal(server: Server, method: str, path: str, *rest: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not after[0]:
            raise Killed
        answer = ask(server, method, path, *rest, **options)
        if left[0] == 0:
            raise Killed
        return answer

    monkeypatch.setattr(Server, "ask", mortal)
    mine = replace(sync, clock=lambda: clock[0])
    table = published.table("trades")

    def killed_then_again(*, published_: bool) -> None:
        for number in range(1, 9):
            for after[0] in (False, True):
                left[0] = number
                with suppress(Killed):
                    mine.table(name, published=published_)
                left[0] = 10**6
                clock[0] += LEASE_MS + 1

    killed_then_again(published_=True)
    mine.table(name, published=True)
    reader = published.reader()
    assert reader.load_table((published.database, "trades")).metadata_location == table.metadata_location
    append(table)
    killed_then_again(published_=True)
    mine.table(name, published=True)
    assert reader.load_table((published.database, "trades")).metadata_location == table.metadata_location
    killed_then_again(published_=False)
    mine.table(name, published=False)
    drop_namespaces(mine, {published.database})
    assert (published.database,) not in reader.list_namespaces()
    assert mine.states.find(Target.ICEBERG_REST, str(name)) is None


def test_a_lost_answer_is_no_second_write_before_the_lease_ends(published: Published, sync: Sync) -> None:
    published.table("trades")
    name = name_of(published, "trades")

    def lose(request: Request) -> Answer | None:
        answer = published.gate.pass_on(request)
        return None if request.path.endswith("/register") else answer

    published.gate.instead = lose
    try:
        outcomes = every(sync, published)
    finally:
        published.gate.instead = published.gate.pass_on
    assert failed(outcomes) == [str(name)]
    state = sync.states.find(Target.ICEBERG_REST, str(name))
    assert state is not None
    assert state.state is State.FAILED
    assert failed(every(replace(sync, patience_s=0.1), published))
    later = replace(sync, clock=lambda: now_ms() + LEASE_MS)
    assert not failed(every(later, published))


def test_a_token_that_ends_is_renewed(published: Published, sync: Sync) -> None:
    published.gate.uses = 2
    try:
        sync.catalog.server._tokens._token = None  # type: ignore[union-attr]
        published.table("trades")
        sync.table(name_of(published, "trades"), published=True)
    finally:
        published.gate.uses = None
    assert published.gate.refused > 0


def test_every_kind_of_difference_is_found_repaired_and_reported(published: Published, sync: Sync) -> None:
    tables = {each: published.table(each) for each in ("same", "missing", "older", "unpublished", "foreign")}
    reader = published.reader()
    namespace = published.database
    oldest = {each: table.metadata_location for each, table in tables.items()}
    reader.create_namespace(namespace)
    reader.register_table((namespace, "foreign"), oldest["foreign"])
    assert failed(every(sync, published)) == [f"{namespace}.foreign"]

    for each in ("missing", "older"):
        append(tables[each])
    reader.drop_table((namespace, "missing"))
    clock = replace(sync, clock=lambda: now_ms() + 120_000)
    outcomes = every(clock, published)
    assert {each.table.partition(".")[2] for each in outcomes if each.repaired} == {"missing", "older"}
    for each in ("same", "missing", "older", "unpublished"):
        assert reader.load_table((namespace, each)).metadata_location == tables[each].metadata_location
    assert not any(each.repaired for each in every(clock, published))

    wanted = Wanted(namespace, frozenset(f"{namespace}.{each}" for each in tables if each != "unpublished"))
    withdraw(clock, wanted)
    with pytest.raises(NoSuchTableError):
        reader.load_table((namespace, "unpublished"))
    withdraw(clock, Wanted(namespace))
    assert reader.list_tables(namespace) == [(namespace, "foreign")]
    assert reader.load_table((namespace, "foreign")).metadata_location == oldest["foreign"]
    assert len(rows(tables["older"])) == 6
    assert list(sync.states.all()) == []


def rows(table: Table) -> list[Any]:
    return list(table.refresh().scan().to_arrow()["n"])


def test_a_server_that_cannot_overwrite_is_told_of_and_nothing_is_dropped(
    published: Published, sync: Sync
) -> None:
    table = published.table("trades")
    name = name_of(published, "trades")
    sync.table(name, published=True)
    before = table.metadata_location
    append(table)

    def without_overwrite(request: Request) -> Answer | None:
        if request.path.endswith("/register"):
            body = {key: value for key, value in json.loads(request.body).items() if key != "overwrite"}
            request = replace(request, body=json.dumps(body).encode())
        return published.gate.pass_on(request)

    published.gate.instead = without_overwrite
    try:
        (failure,) = (each for each in every(sync, published) if each.error)
    finally:
        published.gate.instead = published.gate.pass_on
    assert "cannot register a table again" in failure.reason
    assert published.reader().load_table((published.database, "trades")).metadata_location == before
