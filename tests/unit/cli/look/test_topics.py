"""Commands find the tables of entries with `topics`: by what Kafka lists, and by what the lake has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calve.config.deployment import Deployment, JobDeployment, LakeDeployment
from calve.config.job import Entry, Job, Kafka, Lake, Share, Table, part_of
from calve.errors import ConfigError, Retryable
from calve.schema.columns import struct, with_ids
from calve.table.summary import TOPIC
from cli.config import load_jobs, surveyed, table_named, with_named, with_tables
from cli.lake import Tables
from cli.look.status.survey import Survey
from cli.project.plan.changes import changes
from cli.project.plan.deployed import Deployed, DeployedJob, DeployedTable
from cli.project.plan.survey import expanded
from cli.run.jobs import only, what
from tests.unit.cli.folder_catalog import FolderCatalog

SCHEMA = Schema(NestedField(1, "price", LongType()))
SHOP = Table("shop_{1}", r"shop\.(.*)", freshness_s=5.0)
JOB = Job(
    "t",
    "main",
    Kafka("127.0.0.1:1"),
    None,
    Lake("t", "s3://lake"),
    (Table("people", "shop.people"),),
    patterns=(SHOP,),
    entries=(Entry("people", "shop.people"), Entry(SHOP.name, SHOP.topic, pattern=True)),
)


@dataclass
class Lakes(FolderCatalog):
    """Tables in a folder; what was loaded is noted."""

    folder: Path
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.folder)

    def keep(self, table: str, topic: str | None = None) -> None:
        self.make(("t", table), SCHEMA, properties={TOPIC: topic} if topic else {})

    def load_table(self, identifier: tuple[str, str]) -> object:  # type: ignore[override]
        self.loaded.append(identifier[1])
        return super().load_table(identifier)


@dataclass
class Brokers:
    """A cluster that lists these topics, or does not answer."""

    topics: list[str] | None

    def topic_names(self) -> list[str]:
        if self.topics is None:
            raise Retryable("Kafka does not answer")
        return self.topics


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakes:
    made = Lakes(tmp_path)
    for module in ("cli.config", "cli.lake"):
        monkeypatch.setattr(f"{module}.open_catalog", lambda _: made)
    return made


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers(None)
    for module in ("cli.config", "cli.look.status.survey"):
        monkeypatch.setattr(f"{module}.Cluster", lambda *_: brokers)
    return brokers


def names(job: Job) -> list[str]:
    return [table.name for table in job.tables]


def test_tables_are_those_of_the_topics_that_are_there_and_those_that_the_lake_has(lake: Lakes) -> None:
    lake.keep("shop_gone", "shop.gone")
    lake.keep("shop_orders", "shop.orders")
    lake.keep("shop_orders__dead_letters")
    lake.keep("shop_foreign")
    lake.keep("shop_other", "elsewhere")
    lake.keep("shop_renamed", "shop.gone_too")
    lake.keep("unlike", "shop.unlike")
    found = surveyed(
        [JOB], Tables(lake), "t", ["shop.orders", "shop.new", "shop.people", "shop.a-b", "shop.a_b"]
    )
    assert [(each.name, each.topic, each.freshness_s) for each in found.tables] == [
        ("shop_gone", "shop.gone", 5.0),
        ("shop_new", "shop.new", 5.0),
        ("shop_orders", "shop.orders", 5.0),
    ]
    assert [each.topic for each in found.not_kept] == ["shop.a-b", "shop.a_b"]
    assert "unlike" not in lake.loaded
    assert "shop_orders" not in lake.loaded


def test_a_job_without_patterns_asks_nobody(lake: Lakes) -> None:
    plain = replace(JOB, patterns=(), entries=())
    assert surveyed([plain], Tables(lake), "t", ()).tables == ()
    assert with_named([plain], ["absent"]) == (plain,)
    assert lake.loaded == []


def test_a_table_is_found_by_its_name_without_kafka(lake: Lakes, kafka: Brokers) -> None:
    lake.keep("shop_gone", "shop.gone")
    (job,) = with_named([JOB], ["shop_gone", "people"])
    assert names(job) == ["people", "shop_gone"]
    assert job.tables[1].topic == "shop.gone"
    with pytest.raises(Retryable):
        with_named([JOB], ["shop_new"])
    kafka.topics = ["shop.new", "shop.other"]
    (job,) = with_named([JOB], ["shop_new"])
    assert table_named([job], "shop_new")[1].topic == "shop.new"


def test_parts_of_a_job_have_each_table_once_and_ask_for_it_once(lake: Lakes, kafka: Brokers) -> None:
    parts = [replace(JOB, job=f"main-{n}", tables=(), share=Share("main", n, 3)) for n in (1, 2, 3)]
    for n in range(12):
        lake.keep(f"shop_{n}", f"shop.{n}")
    kafka.topics = ["shop.new"]
    found = surveyed(parts, Tables(lake), "t", kafka.topics)
    kept = [names(with_tables(part, found)) for part in parts]
    assert sorted(each for part in kept for each in part) == sorted(
        ["shop_new", *(f"shop_{n}" for n in range(12))]
    )
    assert all(kept)
    assert sorted(lake.loaded) == sorted(f"shop_{n}" for n in range(12))
    assert [names(part) for part in with_named(parts, ["shop_5"])].count(["shop_5"]) == 1


def test_a_table_of_another_topic_is_not_taken_for_the_patterns(lake: Lakes, kafka: Brokers) -> None:
    lake.keep("shop_gone", "elsewhere")
    kafka.topics = []
    assert names(with_named([JOB], ["shop_gone"])[0]) == ["people"]


def test_named_tables_alone_are_ingested(lake: Lakes, kafka: Brokers) -> None:
    kafka.topics = ["shop.new", "shop.other"]
    (job,) = with_named([JOB], ["shop_new"])
    chosen = only(job, ["shop_new"])
    assert (names(chosen), chosen.patterns) == (["shop_new"], ())
    assert only(JOB, None) == JOB


def test_a_name_that_is_no_table_is_refused_with_the_nearest_one(
    lake: Lakes, kafka: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.topics = ["shop.orders"]
    monkeypatch.setattr("cli.config.current", lambda _: None)
    config = tmp_path / "calve.yaml"
    config.write_text(
        "name: t\nkafka: {bootstrap_servers: 'b:1'}\nregistry: {url: https://r}\n"
        "tables: {'shop_{1}': {topics: 'shop\\.(.*)'}}\n"
    )
    (job,) = load_jobs(config, tables=["shop_orders"])
    assert names(job) == ["shop_orders"]
    with pytest.raises(ConfigError, match='has no table "shop_order"') as caught:
        load_jobs(config, tables=["shop_order"])
    assert caught.value.fix == 'Did you mean "shop_orders"?'


def test_a_survey_shows_the_tables_of_patterns_also_without_kafka(lake: Lakes, kafka: Brokers) -> None:
    lake.keep("shop_orders", "shop.orders")
    survey = Survey.begin([JOB], Tables(lake))
    assert survey.cluster is None
    assert [each.table for each in survey.statuses()] == ["t.people", "t.shop_orders"]
    assert str(survey.unreached) == "Kafka does not answer"


DEPLOYMENT = Deployment("t", (JobDeployment(JOB),), LakeDeployment("t"))
HELD = DeployedTable("-", "-", 2, with_ids(struct()), topic="shop.gone")


def planned(deployed: Deployed, *listed: str) -> tuple[dict[str, str], list[str]]:
    """Kinds of tables and entries, and what is said of entries."""
    whole, entries = expanded(DEPLOYMENT, deployed, listed)
    found = [*changes(whole, deployed), *entries]
    kinds = {each.name: f"{each.kind} {each.note}".strip() for each in found if each.section == "tables"}
    return kinds, [one for each in entries for one in each.undecided]


def test_a_plan_shows_which_topics_become_which_tables() -> None:
    there = Deployed("t", database_exists=True, tables={"shop_gone": HELD, "x": HELD})
    kinds, told = planned(there, "shop.orders", "shop.x__dead_letters")
    assert kinds == {
        "people": "+ from shop.people",
        "shop_gone": "=",
        "shop_orders": "+ from shop.orders",
        "x": "-",
        "shop_{1}": r"+ from topics shop\.(.*): 2 tables",
    }
    assert told == [
        'topic shop.x__dead_letters is not kept: "shop_x__dead_letters" ends in __dead_letters, which is reserved for'
        " dead letters; in calve.yaml, give it a table of its own: `NAME: {topic: shop.x__dead_letters}`"
    ]


def test_a_plan_without_kafka_shows_the_lakes_tables() -> None:
    kinds, _ = planned(Deployed("t", database_exists=True, tables={"shop_gone": HELD}))
    assert kinds["shop_gone"] == "="


def test_a_job_that_is_deployed_with_its_patterns_is_the_same() -> None:
    job = DeployedJob("G.1X", 4, None, "UTC", "Sun:3", {}, JOB, least=2)
    whole, entries = expanded(DEPLOYMENT, Deployed("t", jobs={"main": job}), ["shop.orders"])
    assert [
        each.kind for each in changes(whole, Deployed("t", jobs={"main": job})) if each.section == "jobs"
    ] == ["="]
    assert [each.kind for each in entries] == ["="]
    slower = replace(JOB, patterns=(replace(SHOP, freshness_s=60.0),))
    wanted = replace(DEPLOYMENT, jobs=(replace(DEPLOYMENT.jobs[0], settings=slower),))
    _, (entry,) = expanded(wanted, Deployed("t", jobs={"main": job}), ["shop.orders"])
    assert (entry.kind, [each.key for each in entry.differences]) == ("~", ["freshness"])


def test_a_plan_shows_which_tables_move_to_which_part_and_one_line_for_their_pattern() -> None:
    shares = [Share("main", n, 2) for n in (1, 2)]
    parts = [
        replace(
            JOB,
            job=f"main-{share.part}",
            tables=tuple(each for each in JOB.tables if share.has(each.topic)),
            share=share,
        )
        for share in shares
    ]
    there = Deployed(
        "t",
        database_exists=True,
        jobs={"main": DeployedJob("G.1X", 4, None, "UTC", "Sun:3", {}, JOB, least=2)},
        tables={"shop_gone": HELD, "people": replace(HELD, topic="shop.people")},
    )
    wanted = replace(DEPLOYMENT, jobs=tuple(map(JobDeployment, parts)))
    listed = ["shop.people", "shop.orders"]
    whole, entries = expanded(wanted, there, listed)
    moved = {
        each.name: [(one.key, one.deployed, one.configured) for one in each.differences]
        for each in changes(whole, there)
        if each.section == "tables" and each.kind == "~"
    }
    topics = {"shop_gone": "shop.gone", "shop_orders": "shop.orders", "people": "shop.people"}
    of = {name: f"main-{part_of(topic, 2)}" for name, topic in topics.items()}
    assert moved == {name: [("job", "main", of[name])] for name in topics}
    assert [(each.kind, each.note) for each in entries] == [("=", r"from topics shop\.(.*): 2 tables")]
    spread = {part.job: DeployedJob("G.1X", 4, None, "UTC", "Sun:3", {}, part, least=2) for part in parts}
    again = changes(whole, replace(there, jobs=spread))
    assert {each.kind for each in again if each.section == "jobs"} == {"="}
    assert not [each for each in again if each.kind == "~"]


def test_a_job_whose_topics_are_not_counted_yet_is_told_by_its_name() -> None:
    assert what(JOB) == "for job main"
    named = replace(JOB, patterns=())
    assert what(named) == "people"
    assert what(replace(named, tables=(*JOB.tables, Table("orders", "orders")))) == "2 tables"
