"""Tables that a REST catalog or S3 Tables holds in the place of Glue: the same rounds, the same proof, and what differs.

`tests/integration/crash/test_crash.py` kills jobs at every point of a round, in each home.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from calve.config.job import RestCatalog, Table
from calve.config.maintenance import Maintenance
from calve.errors import Fatal, Retryable
from calve.modes.upsert import Upsert
from calve.names import OWNER_TAG, TableName
from calve.table.summary import DIGESTS, NOTED_TAG, RELEASE
from cli.lake import load, open_catalog
from glue_jobs.maintain import Maintaining
from glue_jobs.maintenance.between_rounds import expire
from glue_jobs.process.java import elements
from glue_jobs.rounds.loop import TableLoop
from lambdas.csv_export.export import Environment
from tests.integration.requests.test_forget import of_first
from tests.integration.requests.test_release import asked, assert_clean
from tests.integration.support.crashing import TOTALS, UPSERTS, VERSIONS, Scene
from tests.integration.support.engine import DATABASE, Engine, everything, suspended
from tests.integration.support.homes import S3TablesGate, moved, rest_home, s3_tables_home
from tests.integration.support.proofs import assert_proved, proof, proof_of_digests
from tests.integration.support.records import persons
from tests.integration.support.running import run
from tests.integration.support.servers.gate import Answer, Request
from tests.integration.support.servers.rest_catalogs import CLIENT, OAuthGate

FEW = Maintenance(snapshots_at_least=1, snapshots_at_most=2)
MANY_FILES = 40


def objects(home: Engine, prefix: str) -> list[str]:
    """Past the gate that nobody lists tables through."""
    return [str(each.location()) for each in elements(home.lake.io.listPrefix(prefix))]


def of_many_files(home: Engine) -> str:
    """A table of as many files as rows."""
    topic = home.topic(partitions=1)
    for _ in range(MANY_FILES):
        home.ingest(topic, 1)
    return topic


@pytest.fixture(scope="module")
def rest(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, OAuthGate]]:
    with rest_home(engine, tmp_path_factory.mktemp("rest")) as found:
        yield found


@pytest.fixture(scope="module")
def s3_tables(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, S3TablesGate]]:
    with s3_tables_home(engine, tmp_path_factory.mktemp("s3tables")) as found:
        yield found


@pytest.fixture(params=["rest", "s3_tables"])
def home(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)[0]
    return found


@pytest.mark.parametrize(
    "mode",
    [None, *(pytest.param(each, marks=pytest.mark.long) for each in (UPSERTS, VERSIONS, TOTALS))],
    ids=["append", "upsert", "history", "totals"],
)
def test_rounds_are_proved_and_glue_knows_nothing(home: Engine, engine: Engine, mode: Any) -> None:
    scene = Scene(home, mode=mode)
    for _ in range(2):
        scene.produce()
        scene.finish()
    if mode is None:
        assert proof_of_digests(home, scene.topic).findings == ()
    assert engine.lake.load(scene.name) is None
    assert home.lake.locations({scene.name, TableName(DATABASE, "none")}) == {
        scene.name: home.table(scene.topic).found["metadata_location"]
    }


def test_a_note_on_metadata_that_is_not_the_newest_is_refused(home: Engine) -> None:
    """A REST catalog compares no properties. The first two notes are at one snapshot, as are the last two."""
    topic = home.topic(partitions=1)
    home.ingest(topic, 1)
    for value in ("1", "2", "3"):
        first, second = home.table(topic), home.table(topic)
        first.note({"note": value})
        with pytest.raises(Retryable):
            second.note({"note": "other"})
        assert home.table(topic).properties["note"] == value
    home.ingest(topic, 1)
    home.table(topic).note({"note": "4"})
    assert home.table(topic).refs()[NOTED_TAG] == home.table(topic).head


@pytest.mark.long
def test_answers_that_are_lost_lose_and_double_nothing(rest: tuple[Engine, OAuthGate]) -> None:
    """Each commit of the rounds arrives, one after the other, and the job does not hear of it."""
    home, gate = rest
    scene = Scene(home)
    scene.produce()
    scene.finish()
    commits = 0

    def losing(nth: int) -> Any:
        def answer(request: Request) -> Answer | None:
            nonlocal commits
            answered = gate.pass_on(request)
            commits += request.method == "POST"
            return None if request.method == "POST" and commits == nth else answered

        return answer

    for nth in range(1, 7):
        commits, gate.instead = 0, losing(nth)
        scene.produce()
        scene.loop()
        assert commits >= min(nth, 3)
        gate.instead = gate.pass_on
        scene.finish()
    assert_proved(proof(home, scene.topic))


def test_a_catalog_that_refuses_the_client_ends_the_job(
    rest: tuple[Engine, OAuthGate], tmp_path: Path
) -> None:
    home, gate = rest
    (secret := tmp_path / "client.json").write_text(
        json.dumps({"client_id": CLIENT, "client_secret": "wr0ng"})
    )
    assert isinstance(home.home, RestCatalog)
    stranger = moved(home, replace(home.home, secret=f"file:{secret}"))
    for ask in (
        lambda: stranger.lake.load(TableName(DATABASE, "any")),
        lambda: open_catalog(stranger.job().lake),
    ):
        with pytest.raises(Fatal) as caught:
            ask()
        assert "lake.catalog" in str(caught.value)
        assert "wr0ng" not in str(caught.value)
    home.lake.load(TableName(DATABASE, "any"))
    gate.tokens.clear()
    with pytest.raises(Fatal):
        home.lake.load(TableName(DATABASE, "any"))
    again = moved(home, home.home)  # the next run
    assert again.lake.load(TableName(DATABASE, "any")) is None
    home.lake = again.lake
    home.spark = again.spark


def test_an_export_reads_a_table_of_a_rest_catalog(rest: tuple[Engine, OAuthGate]) -> None:
    home, _ = rest
    topic = home.topic(partitions=1)
    home.ingest(topic, 5)
    assert home.home is not None
    names = (each.name for each in fields(Environment) if each.default is MISSING)
    environment = replace(
        Environment(**dict.fromkeys(names, home.stack.region)),
        aws_endpoint_url=home.stack.aws_endpoint,
        catalog=json.dumps(asdict(home.home)),
    )
    catalog = load_catalog("lake", **environment.catalog_properties())
    assert catalog.load_table((DATABASE, topic)).scan().to_arrow().num_rows == 5


@pytest.mark.long
def test_the_job_maintains_tables_of_a_rest_catalog(rest: tuple[Engine, OAuthGate]) -> None:
    home, _ = rest
    topic = of_many_files(home)
    assert run(TableLoop(home.target(topic), threading.Event(), drain=True)) == "running"
    assert home.table(topic).total("data-files") < MANY_FILES
    job = home.job(Table(topic, topic, maintenance=FEW))
    for kind in ("compact", "manifests", "orphans", "snapshots"):
        assert Maintaining(home.lake, threading.Event(), only=kind).all(job) == []
    table = home.table(topic)
    assert table.total("data-files") == 1
    assert table.properties[DIGESTS].startswith(str(table.java.location()))
    assert_proved(proof(home, topic))
    assert proof_of_digests(home, topic).findings == ()


@pytest.mark.long
def test_s3_tables_compacts_and_deletes_files_itself(s3_tables: tuple[Engine, S3TablesGate]) -> None:
    """calve expires snapshots, since it keeps digests and the position. It deletes no file of the table."""
    home, gate = s3_tables
    topic = of_many_files(home)
    settings = Table(topic, topic, maintenance=FEW)
    maintaining = Maintaining(home.lake, threading.Event(), only="compact")
    assert maintaining.all(home.job(settings)) == [f"{DATABASE}.{topic}"]
    everything_due = Maintaining(home.lake, threading.Event())
    place = f"{home.table(topic).java.location()}/"
    before = {*objects(home, place)}
    assert everything_due.all(home.job(settings)) == []
    assert run(TableLoop(home.target(topic, maintenance=FEW), threading.Event(), drain=True)) == "running"
    table = home.table(topic)
    assert table.total("data-files") == MANY_FILES
    assert "history.expire.max-snapshot-age-ms" in table.properties
    assert int(table.java.snapshots().size()) < MANY_FILES
    assert before <= {*objects(home, place)}
    assert table.properties[DIGESTS].startswith(f"{home.lake.files}/{DATABASE}/{topic}/_digests/")
    for _ in range(3):
        home.ingest(topic, 1)
    expire(settings, home.table(topic), None, said=None)
    assert objects(home, f"{home.lake.files}/{DATABASE}/{topic}/") == [home.table(topic).properties[DIGESTS]]
    home.compact(topic)  # as the service does
    home.ingest(topic, 1)
    assert_proved(proof(home, topic))
    assert proof_of_digests(home, topic).findings == ()
    assert gate.refused == []


def test_rows_whose_files_the_service_compacts_are_still_replaced(
    s3_tables: tuple[Engine, S3TablesGate],
) -> None:
    home, _ = s3_tables
    topic = home.topic(partitions=1)
    target = home.target(topic, upsert=Upsert(("id",)))
    for _ in range(3):
        home.produce(topic, 5)
        home.drain(target)
        home.compact(topic)
    assert home.rows(topic).count() == 5
    assert_proved(proof(home, topic))


@pytest.mark.long
def test_a_forgotten_person_leaves_a_rest_catalog(rest: tuple[Engine, OAuthGate], tmp_path: Path) -> None:
    scene = persons.Scene(rest[0], tmp_path, {})
    for _ in range(2):
        scene.round()
    home = rest[0]
    home.table(scene.topic).note({"note": "1"})  # its tag holds a snapshot with the person
    request = scene.ask(email=scene.persons[0].email)
    scene.work()
    entry = scene.answer(request)
    assert (entry.rows, entry.problem) == (2, None)
    assert of_first(scene.found()) == {}
    assert_proved(scene.proof())


def test_s3_tables_cannot_forget_and_says_so(s3_tables: tuple[Engine, S3TablesGate], tmp_path: Path) -> None:
    scene = persons.Scene(s3_tables[0], tmp_path, {})
    scene.round()
    request = scene.ask(email=scene.persons[0].email)
    scene.work()
    assert "S3 Tables deletes files" in str(scene.answer(request).problem)
    assert len(scene.rows()) == len(scene.persons)


def test_a_released_table_has_nothing_of_calve(home: Engine) -> None:
    topic = home.topic(partitions=1)
    home.ingest(topic, 3)
    home.table(topic).note({"note": "1"})
    asked(home, topic)
    with suspended("not_ours"):
        home.drain(home.target(topic))
    assert RELEASE not in home.table(topic).properties
    assert_clean(home, topic)
    assert home.offsets(topic) == everything(3)


def test_a_namespace_names_its_deployment(home: Engine) -> None:
    home.lake._create_database(name := "made")
    catalog = open_catalog(home.job().lake)
    found = catalog.load_namespace_properties(name)
    assert found.get(OWNER_TAG, found.get("owner")) == "tests"
    assert load(catalog, TableName(name, "none")) is None
