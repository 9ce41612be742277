import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import SparkSession

from calve.config.job import Job, Kafka, Lake, Registry
from calve.config.spark_conf import FILES
from cli.embedded import runtimes
from cli.embedded import stack as embedded
from cli.embedded.layout import Layout
from cli.progress import LineProgress
from cli.spark import spark_environment
from glue_jobs.engines import choice
from glue_jobs.iceberg.catalog import Lake as JobLake
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.process.session import spark_session
from tests.integration.support.engine import CHOICE, DATABASE, Engine
from tests.integration.support.exporting import Deployment, deploy_weekly
from tests.spark_decoder import LIMITS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def stack(worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Stack]:
    """The embedded stack: the one that runs, left as it is, or one for this session alone; each further worker's own."""
    progress = LineProgress(lambda line: print(line, file=sys.__stderr__, flush=True))
    with embedded.exclusive(layout := Layout(ROOT), progress):
        embedded.prepare(layout, progress)
        runtimes.install_cdk(layout, progress)
    alone = worker_id in ("master", "gw0")
    root = ROOT if alone else tmp_path_factory.mktemp("worker")
    with contextlib.chdir(root), embedded.running(root, progress) as running:
        yield running


@pytest.fixture(scope="session")
def spark(stack: embedded.Stack) -> Iterator[SparkSession]:
    """The one Spark session of the run, set up as a job's."""
    environment = spark_environment(stack, memory="4g", quick=True, conf=LIMITS)
    os.environ.update(
        environment | {"PYTHONPATH": str(ROOT)}
    )  # its Python workers import `tests.spark_decoder`
    lake = Lake(DATABASE, warehouse(stack), endpoint=stack.aws_endpoint, region=stack.region)
    session = spark_session(
        Job("tests", "main", Kafka(stack.bootstrap_servers), Registry(stack.registry_url), lake, ())
    )
    yield session
    session.stop()


def warehouse(stack: embedded.Stack) -> str:
    return f"s3://{stack.bucket}/tests"


@pytest.fixture(autouse=True)
def own_warehouse(request: pytest.FixtureRequest) -> None:
    """A command or job that an earlier test ran in this process has set the session's own to that of its lake."""
    if "spark" in request.fixturenames:
        stack, session = request.getfixturevalue("stack"), request.getfixturevalue("spark")
        require_jvm(session)
        session.conf.set(FILES, warehouse(stack))


def require_jvm(session: SparkSession) -> None:
    """Fail with the reason if the session's JVM has ended: no later test of this process can pass."""
    jvm: Any = session.sparkContext._gateway
    if (code := jvm.proc.poll()) is not None:
        logs = [each.read_text()[:3_000] for each in Path.cwd().glob("hs_err_pid*.log")]
        free = Path("/proc/meminfo").read_text().splitlines()[2]
        pytest.fail("\n".join([f"Spark's JVM has ended with {code}. {free}", *logs]), pytrace=False)


@pytest.fixture(scope="session")
def engine(stack: embedded.Stack, spark: SparkSession) -> Iterator[Engine]:
    """The ingest engine in this process."""
    servers: dict[str, str | int | float | bool] = {
        "bootstrap.servers": stack.bootstrap_servers,
        "log_level": 0,  # these clients outlive the broker that tests stop, and say so many times a second
    }
    cluster = Cluster(Kafka(stack.bootstrap_servers))
    if CHOICE != "rows":
        choice.loaded(spark.sparkContext)
    lake = JobLake(spark, "tests")
    spark.conf.set(FILES, warehouse(stack))
    lake._create_database(DATABASE)  # the first that makes it decides the bucket of all its tables
    yield Engine(
        stack,
        spark,
        cluster,
        lake,
        AdminClient(servers),
        SchemaRegistryClient({"url": stack.registry_url}),
        Producer(servers | {"linger.ms": 5, "enable.idempotence": True}),
    )
    cluster.close()


@pytest.fixture(scope="session")
def weekly(stack: embedded.Stack, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """The one deployment that tests share and leave as it is: with exports, its topic drained into its table."""
    progress = LineProgress(lambda line: print(line, file=sys.__stderr__, flush=True))
    return deploy_weekly(stack, tmp_path_factory.mktemp("weekly"), progress)
