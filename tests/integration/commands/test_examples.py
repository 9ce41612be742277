"""The examples, run as they stand: their generator, their calve.yaml, their expected rows."""

from __future__ import annotations

import importlib.util
import json
import secrets
import shutil
import subprocess
import sys
import threading
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import Row
from typer.testing import CliRunner

from calve.config.job import Job, Kafka, Registry
from calve.config.spark_conf import CATALOG
from calve.names import TableName
from calve.schema.wire import HEADERS
from calve.settings import load
from calve.settings.resolving import StackDefaults
from cli.config import Where, load_jobs
from cli.console import Console
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.lake import open_catalog
from cli.main import app
from cli.progress import LineProgress
from cli.project.capture.folder import Capture
from cli.project.preview import replayable, replayed
from cli.run.datagen.plan import Plan
from cli.run.datagen.produce import Target, produce
from cli.run.jobs import run_deployed
from cli.verify.topic import Sources
from cli.verify.verification import verify
from glue_jobs.ingest import openers_of, run
from glue_jobs.kafka.cluster import Cluster
from lambdas.publish_states import PublishStates, State
from lambdas.publish_states import Target as Published
from tests.integration.outputs.test_emit import records
from tests.integration.requests.test_release import document
from tests.integration.support.deployed import destroy
from tests.integration.support.engine import Engine, until
from tests.integration.support.homes import moved
from tests.integration.support.proofs import assert_proved
from tests.integration.support.running import answering, running
from tests.integration.support.servers.guid_registry import GuidRegistry
from tests.integration.support.servers.registry_gate import RegistryGate
from tests.standins import openlineage
from tests.standins.mirror.__main__ import files
from tests.standins.mirror.server import mirror, second_cluster

EXAMPLES = Path(__file__).parents[3] / "examples"


def as_written(engine: Engine, name: str) -> Job:
    """The example's job on the engine's stack."""
    stack = engine.stack
    defaults = StackDefaults(
        Kafka(stack.bootstrap_servers),
        Registry(stack.registry_url),
        f"s3://{stack.bucket}/{name}",
        stack.region,
        stack.aws_endpoint,
    )
    [job] = load(EXAMPLES / name / "calve.yaml", stack=defaults)
    return job


def loaded(engine: Engine, name: str) -> Job:
    """The example's job with topics and a database of its own: other tests run the examples, too."""
    job = as_written(engine, name)
    suffix = uuid.uuid4().hex[:8]
    tables = tuple(
        replace(
            table,
            topic=f"{table.topic}_{suffix}",
            emit=table.emit and replace(table.emit, topic=f"{table.emit.topic}_{suffix}"),
        )
        for table in job.tables
    )
    return replace(job, tables=tables, lake=replace(job.lake, database=f"{job.lake.database}_{suffix}"))


def script(name: str, file: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"examples_{name}_{file}", EXAMPLES / name / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ingest(engine: Engine, job: Job) -> None:
    """Drain the tables one after the other, in the order of calve.yaml."""
    for target in openers_of(job, engine.lake, engine.cluster):
        engine.drain(target)


def assert_expected(engine: Engine, job: Job, example: str) -> None:
    for name, expected in json.loads((EXAMPLES / example / "expected.json").read_text()).items():
        table = engine.spark.table(TableName(job.lake.database, name).quoted(CATALOG))
        found = [list(row) for row in table.selectExpr(*expected["columns"]).collect()]
        assert sorted(found, key=str) == sorted(expected["rows"], key=str), name


def emitted(engine: Engine, job: Job, name: str) -> list[Any]:
    """The records that the table of that name emitted."""
    [emit] = [table.emit for table in job.tables if table.name == name]
    assert emit is not None
    return records(engine, emit.topic)


def assert_all_proved(job: Job) -> None:
    """`calve verify` of every table."""
    catalog = open_catalog(job.lake)
    for table in job.tables:
        assert_proved(
            verify(job.table_name(table), Sources.of(catalog, job, table), LineProgress(lambda _: None))
        )


@pytest.mark.long
def test_anomalies(engine: Engine) -> None:
    job = loaded(engine, "anomalies")
    [topic] = {table.topic for table in job.tables}
    script("anomalies", "generate").generate(topic, engine.stack.bootstrap_servers, engine.stack.registry_url)
    ingest(engine, job)
    assert_expected(engine, job, "anomalies")
    assert_all_proved(job)
    flagged = emitted(engine, job, "flagged_stock_trades")
    assert sorted(value["anomaly_flag"] for _, value, _ in flagged) == [
        "LARGE_TRADE",
        "LARGE_TRADE",
        "NEGATIVE_PRICE",
        "UNUSUAL_PRICE",
    ]  # a round promises no order
    table = engine.lake.load(TableName(job.lake.database, "flagged_stock_trades"))
    assert table is not None
    counts = json.loads(next(table.ancestors()).summary["calve.metrics"])["counts"]
    assert counts["values"] == {"LARGE_TRADE": 2, "NEGATIVE_PRICE": 1, "UNUSUAL_PRICE": 1}
    assert len(emitted(engine, job, "stock_trades_with_totals")) == 10
    assert len({key for key, _, _ in emitted(engine, job, "stock_total_trades")}) == 6


@pytest.mark.long
def test_the_sales_channel(engine: Engine) -> None:
    job = loaded(engine, "sales_channel")
    [topic] = {table.topic for table in job.tables}
    generate, expected = script("sales_channel", "generate"), script("sales_channel", "expected")
    generate.generate(topic, engine.stack.bootstrap_servers, engine.stack.registry_url, 300)
    ingest(engine, job)
    assert_all_proved(job)
    events = list(generate.events(300))
    raw, sales = (
        engine.spark.table(TableName(job.lake.database, name).quoted(CATALOG))
        for name in ("sales_raw", "sales")
    )
    assert raw.count() == 300
    wanted = sorted((list(each.values()) for each in expected.rows(events)), key=str)
    assert sorted((plain(row) for row in sales.drop("_kafka").collect()), key=str) == wanted
    assert sales.columns[:-1] == list(next(iter(expected.rows(events))))
    assert len(emitted(engine, job, "sales")) == len(wanted)
    emails = {each["customer"]["email"] for each in events}
    keys = {bytes(row[0]).decode() for row in sales.select("_kafka.key").distinct().collect()}
    assert keys == {expected.token(each) for each in emails}


@pytest.mark.long
def test_confluent_cloud(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a broker that asks for TLS and a password, and a registry behind basic authentication."""
    stack, password = engine.stack, secrets.token_urlsafe(12)
    folder = tmp_path / "confluent_cloud"
    shutil.copytree(EXAMPLES / "confluent_cloud", folder)
    monkeypatch.setenv("KAFKA", json.dumps({"username": stack.sasl_user, "password": stack.sasl_password}))
    monkeypatch.setenv("REGISTRY", json.dumps({"username": "reader", "password": password}))
    with RegistryGate(stack.registry_url, "reader", password) as gate:
        here = {
            "kafka": {
                "bootstrap_servers": stack.sasl_bootstrap_servers,
                "auth": {"secret": "env:KAFKA", "ca_file": str(stack.ca_file)},
            },
            "registry": {"url": gate.url, "secret": "env:REGISTRY"},
        }
        (folder / "calve.here.yaml").write_text(json.dumps(here))
        warehouse = f"s3://{stack.bucket}/confluent_cloud"
        defaults = StackDefaults(None, None, warehouse, stack.region, stack.aws_endpoint)
        [job] = load(folder / "calve.yaml", env="here", stack=defaults)
        job = replace(
            job,
            tables=tuple(replace(each, topic=f"{each.topic}_{uuid.uuid4().hex[:8]}") for each in job.tables),
        )
        for table in job.tables:
            engine.create(table.topic, partitions=2)
        script("confluent_cloud", "generate").generate(job)
        assert set(dict(run(job, drain=True, stop=threading.Event())).values()) == {"running"}
        assert_all_proved(job)
    assert_expected(engine, job, "confluent_cloud")


@pytest.mark.long
def test_leave(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"trades_{uuid.uuid4().hex[:8]}", tmp_path / "calve.yaml"
    file.write_text((EXAMPLES / "leave" / "calve.yaml").read_text().replace("stock_trades", name))
    to = Target(Kafka(engine.stack.bootstrap_servers), Registry(engine.stack.registry_url))
    produce(Plan(name, 1_000, "stock_trades"), to)
    [job] = load_jobs(file)
    target = openers_of(job, engine.lake, engine.cluster)[0]
    engine.drain(target)
    with running(target, monkeypatch):
        arguments = ["release", name, "--yes", "-o", "json", "--config", str(file)]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    produce(Plan(name, 500, "stock_trades", seed=1), to)
    assert script("leave", "go_on").go_on(job, document(done.stdout)) == 500
    table = engine.spark.table(TableName(job.lake.database, name).quoted(CATALOG))
    assert table.count() == 1_500


@pytest.mark.long
def test_adopt(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"trades_{uuid.uuid4().hex[:8]}", tmp_path / "calve.yaml"
    file.write_text((EXAMPLES / "adopt" / "calve.yaml").read_text().replace("stock_trades", name))
    to = Target(Kafka(engine.stack.bootstrap_servers), Registry(engine.stack.registry_url))
    produce(Plan(name, 1_000, "stock_trades"), to)
    [job] = load_jobs(file)
    assert script("adopt", "home_made").fill(job) == 1_000
    produce(Plan(name, 500, "stock_trades", seed=1), to)
    [target] = openers_of(job, engine.lake, engine.cluster)
    with answering(target):
        done = CliRunner().invoke(app, ["adopt", name, "--since", "1h", "--yes", "--config", str(file)])
    assert done.exit_code == 0, done.output
    engine.drain(target)
    assert engine.spark.table(TableName(job.lake.database, name).quoted(CATALOG)).count() == 1_500
    checked = CliRunner().invoke(app, ["verify", name, "--config", str(file)])
    assert checked.exit_code == 0, checked.output


@pytest.mark.long
def test_infer(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"clicks_{uuid.uuid4().hex[:8]}", tmp_path / "calve.yaml"
    file.write_text((EXAMPLES / "infer" / "calve.yaml").read_text().replace("clicks", name))
    [job] = load_jobs(file)
    [target], clicks = openers_of(job, engine.lake, engine.cluster), script("infer", "clicks")
    for release in (1, 2, 3):
        assert clicks.send(job, release) == 100
        engine.drain(target)
    newest = "SELECT visitor, price, page, rest FROM {t} ORDER BY clicked_at DESC LIMIT 1".replace(
        "{t}", name
    )
    asked = CliRunner().invoke(app, ["query", newest, "--output", "json", "--config", str(file)])
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout) == [
        {
            "visitor": None,
            "price": 0.5,
            "page": {"path": "/shoes/99", "tags": "[]"},
            "rest": '{"visitor":"u-1"}',
        }
    ]
    checked = CliRunner().invoke(app, ["verify", name, "--config", str(file)])
    assert checked.exit_code == 0, checked.output


@pytest.mark.long
def test_cloudevents(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"sales_{uuid.uuid4().hex[:8]}", tmp_path / "calve.yaml"
    file.write_text((EXAMPLES / "cloudevents" / "calve.yaml").read_text().replace("sales", name))
    (tmp_path / "sale.json").write_text((EXAMPLES / "cloudevents" / "sale.json").read_text())
    [job] = load_jobs(file)
    assert script("cloudevents", "sales").send(job) == 220
    ingest(engine, job)
    dearest = (
        f"SELECT item, price, event.source, event.time FROM {name} ORDER BY price DESC, event.source LIMIT 2"
    )
    asked = CliRunner().invoke(app, ["query", dearest, "--output", "json", "--config", str(file)])
    assert asked.exit_code == 0, asked.output
    assert [(each["item"], each["source"]) for each in json.loads(asked.stdout)] == [
        ("i-99", "/till"),
        ("i-99", "/web"),
    ]
    counted = CliRunner().invoke(
        app, ["query", f"SELECT count(*) AS n FROM {name}", "--output", "json", "--config", str(file)]
    )
    assert json.loads(counted.stdout) == [{"n": 200}]
    checked = CliRunner().invoke(app, ["verify", name, "--config", str(file)])
    assert checked.exit_code == 0, checked.output


@pytest.mark.long
def test_delta(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"delta{uuid.uuid4().hex[:6]}", tmp_path / "calve.yaml"
    text = (EXAMPLES / "delta" / "calve.yaml").read_text()
    text = text.replace("name: delta", f"name: {name}").replace("topic: balances", f"topic: balances-{name}")
    file.write_text(text)
    (tmp_path / "balance.json").write_text((EXAMPLES / "delta" / "balance.json").read_text())
    [job] = load_jobs(file)
    assert script("delta", "balances").send(job) == 210
    made, progress = App(engine.stack, file), LineProgress(lambda _: None)
    outputs = replace(made, context={"delete_data": f"yes-delete-{name}"}).deploy(progress)
    states = PublishStates(
        outputs[f"{name}-publish"]["PublishStatesTable"], aws.client("dynamodb", engine.stack.aws_endpoint)
    )
    assert run_deployed(engine.stack, f"{name}-main", Console(), drain=True, memory="1g", quick=True) == 0

    def synced() -> bool:
        found = states.find(Published.DELTA, f"{name}.balances")
        return found is not None and found.state is State.SYNCED

    until(synced, seconds=90)
    assert script("delta", "read").totals(engine.stack, name, "balances") == {
        "accounts": 40,
        "cents": 121_180,
    }
    destroy(made, progress)


@pytest.mark.long
def test_lineage(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"lineage{uuid.uuid4().hex[:6]}", tmp_path / "calve.yaml"
    folder = EXAMPLES / "lineage"
    text = (folder / "calve.yaml").read_text()
    text = text.replace("name: lineage", f"name: {name}").replace("topic: orders", f"topic: orders-{name}")
    (tmp_path / "order.json").write_text((folder / "order.json").read_text())
    with openlineage.serving(key=None) as receiver:
        file.write_text(text.replace("http://127.0.0.1:5050", receiver.url))
        [job] = load_jobs(file)
        assert script("lineage", "orders").send(job) == 100
        made, progress = App(engine.stack, file), LineProgress(lambda _: None)
        replace(made, context={"delete_data": f"yes-delete-{name}"}).deploy(progress)
        assert run_deployed(engine.stack, f"{name}-main", Console(), drain=True, memory="1g", quick=True) == 0
        until(lambda: bool(receiver.of(f"{name}.orders")), seconds=90)
        (event,) = receiver.of(f"{name}.orders")
        shown = "\n".join(script("lineage", "receive").lines(event)).replace(name, "lineage")
        assert shown.replace("orders-lineage", "orders") in (folder / "README.md").read_text()
        destroy(made, progress)


@pytest.mark.long
def test_digests(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"payments_{uuid.uuid4().hex[:8]}", tmp_path / "calve.yaml"
    text = (EXAMPLES / "digests" / "calve.yaml").read_text()
    file.write_text(text.replace("payments", name))
    (tmp_path / "payment.json").write_text((EXAMPLES / "digests" / "payment.json").read_text())
    [job] = load_jobs(file)
    payments, change = script("digests", "payments"), script("digests", "change")
    for day in (1, 2, 3):
        assert payments.send(job, day) == 100
        engine.drain(openers_of(job, engine.lake, engine.cluster)[0])
    assert payments.delete(job) == name
    until(lambda: engine.key(name) is None)
    arguments = ["verify", name, "-c", str(file), "--without-kafka", "--output", "json"]
    proved = CliRunner().invoke(app, arguments)
    assert proved.exit_code == 0, proved.output
    (check,) = json.loads(proved.stdout)["checks"]
    assert (check["state"], check["figures"]) == ("proved", {"rounds": 3, "rows": 300})
    change.change(job, job.lake.database)
    failed = CliRunner().invoke(app, arguments)
    assert failed.exit_code == 1
    (finding,) = json.loads(failed.stdout)["findings"]
    assert (finding["partition"], finding["offsets"]) == (0, [[100, 200]])


@pytest.mark.long
def test_home(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"trades_{uuid.uuid4().hex[:8]}", tmp_path / "calve.yaml"
    file.write_text((EXAMPLES / "home" / "calve.yaml").read_text().replace("stock_trades", name))
    (tmp_path / "calve.here.yaml").write_text(script("home", "catalog").overlay(engine.stack))
    produce(
        Plan(name, 1_000, "stock_trades"),
        Target(Kafka(engine.stack.bootstrap_servers), Registry(engine.stack.registry_url)),
    )
    [job] = load_jobs(file, "here")
    assert job.lake.catalog is not None
    home = moved(engine, job.lake.catalog)
    home.drain(openers_of(job, home.lake, home.cluster)[0])
    engine.lake._activate()
    here = ["--config", str(file), "--env", "here", "--output", "json"]
    for words in (["tables"], ["verify", name]):
        done = CliRunner().invoke(app, [*words, *here])
        assert done.exit_code == 0, done.output
    counted = CliRunner().invoke(app, ["query", f"select count(*) as n from {name}", *here])
    assert json.loads(counted.stdout) == [{"n": 1_000}]
    assert engine.lake.load(job.table_name(job.tables[0])) is None


@pytest.mark.long
def test_move(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for names and the way to the stack."""
    name, file = f"trades_{uuid.uuid4().hex[:8]}", tmp_path / "calve.yaml"
    file.write_text((EXAMPLES / "move" / "calve.yaml").read_text().replace("stock_trades", name))
    former = engine.stack.bootstrap_servers
    to = Target(Kafka(former), Registry(engine.stack.registry_url))
    produce(Plan(name, 1_000, "stock_trades"), to)
    [job] = load_jobs(file)
    engine.drain(openers_of(job, engine.lake, engine.cluster)[0])
    produce(Plan(name, 500, "stock_trades", seed=1), to)
    with second_cluster() as copy, mirror(former, copy, name), files(tmp_path, former, copy):
        arguments = [
            name,
            "--from-cluster",
            str(tmp_path / "former.yaml"),
            "--config",
            str(file),
            "--env",
            "copy",
        ]
        with closing(Cluster(Kafka(copy))) as cluster:
            until(lambda: name in cluster.names() and sum(cluster.state(name).end.values()) == 1_500)
            [moved] = load_jobs(file, "copy")
            [target] = openers_of(moved, engine.lake, cluster)
            with answering(target):
                done = CliRunner().invoke(app, ["move", *arguments, "--yes"])
                assert done.exit_code == 0, done.output
            engine.drain(target)
        checked = CliRunner().invoke(app, ["verify", *arguments])
        assert checked.exit_code == 0, checked.output
    assert engine.spark.table(TableName(job.lake.database, name).quoted(CATALOG)).count() == 1_500


@pytest.mark.long
def test_header_schema_ids(engine: Engine, tmp_path: Path) -> None:
    """With a registry that has GUIDs, as Confluent's; the commands of its README, but for names of topics."""
    stack = engine.stack
    with GuidRegistry(stack.registry_url) as registry:
        text = (EXAMPLES / "header_schema_ids" / "calve.yaml").read_text()
        suffix = uuid.uuid4().hex[:8]
        text = text.replace("topic: stock_trades", f"topic: stock_trades_{suffix}")
        text = text.replace("topic: large_trades", f"topic: large_trades_{suffix}")
        text = text.replace("kafka.example:9092", stack.bootstrap_servers)
        file = tmp_path / "calve.yaml"
        file.write_text(text.replace("https://registry.example #", f"{registry.url} #"))
        for more in ([], ["--malformed", "8", "--schema-id", "header"]):
            to = [f"stock_trades_{suffix}", "--like", "stock_trades", "--config", str(file)]
            made = ["--count", "1000", "--large-quantities", "0.1", *more]
            assert CliRunner().invoke(app, ["datagen", *to, *made]).exit_code == 0
        warehouse = f"s3://{stack.bucket}/headers_{suffix}"
        [job] = load(file, stack=StackDefaults(None, None, warehouse, stack.region, stack.aws_endpoint))
        job = replace(job, lake=replace(job.lake, database=f"{job.lake.database}_{suffix}"))
        ingest(engine, job)
        assert_all_proved(job)
        trades = engine.spark.table(TableName(job.lake.database, "stock_trades").quoted(CATALOG))
        large = engine.spark.table(TableName(job.lake.database, "large_trades").quoted(CATALOG))
        assert trades.count() == 2_000 - 8
        assert large.count() == trades.where("quantity > 4000").count() > 150
        made_engine = replace(engine, registry=SchemaRegistryClient({"url": registry.url}))
        found = emitted(made_engine, job, "large_trades")
        assert len(found) == large.count()
        assert all(HEADERS["value"] in headers for _, _, headers in found)


def plain(row: Row) -> list[Any]:
    """A row's values; moments are those of Python in UTC."""
    return [each.astimezone(UTC) if isinstance(each, datetime) else each for each in row]


@pytest.mark.long
def test_a_capture_as_it_is_in_a_repository(engine: Engine) -> None:
    """Before the fix, and after it, without Kafka and registry."""
    found = Capture.read(EXAMPLES / "capture" / "commas")
    for env, fate in ((None, "step_failed"), ("fixed", "1 row")):
        job, table = replayable(Where(EXAMPLES / "capture" / "calve.yaml", env), "orders", "orders")
        assert set(replayed(engine.spark, job, table, found).fates.values()) == {fate}


@pytest.mark.long
def test_capture(engine: Engine, tmp_path: Path) -> None:
    """The commands of its README, but for the topic and the folder."""
    topic, here = f"orders_{uuid.uuid4().hex[:8]}", EXAMPLES / "capture"
    for each in here.glob("*.*"):
        shutil.copy(each, tmp_path)
    file = tmp_path / "calve.yaml"
    file.write_text(file.read_text().replace("topic: orders", f"topic: {topic}"))
    engine.create(topic, partitions=1)
    for line in (here / "orders.jsonl").read_bytes().splitlines():
        engine.send(topic, line)
    engine.flush()

    def calve(*words: str) -> Any:
        command = [sys.executable, "-m", "cli.main", *words, "--config", str(file), "--output", "json"]
        done = subprocess.run(command, cwd=engine.stack.root, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    late = str(tmp_path / "late")
    assert calve("preview", "orders")["rows"] == 2
    assert calve("capture", "orders", "--offsets", "0:1-2", "--into", late)["fates"] == ["step_failed"] * 2
    assert "Noether" not in (tmp_path / "late" / "records.jsonl").read_text()
    file.write_text(file.read_text() + "kafka: {bootstrap_servers: 'nowhere:9092'}\n")
    made = calve("preview", "orders", "--capture", late, "--env", "fixed")
    assert (made["rows"], made["refused"]) == (2, [])
    assert [each["now"] for each in made["changed"]] == ["1 row", "1 row"]
