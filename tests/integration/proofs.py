"""`verify` for the tables of an engine in this process."""

from __future__ import annotations

from calve.job import Lake
from calve.names import TableName
from cli.lake import open_catalog
from cli.progress import LineProgress
from cli.verify.findings import Verification
from cli.verify.sources import Sources
from cli.verify.verification import verify
from tests.integration.engine import DATABASE, Engine


def proof(engine: Engine, topic: str) -> Verification:
    job = engine.job()
    lake = Lake(DATABASE, job.lake.warehouse, endpoint=engine.stack.aws_endpoint, region=engine.stack.region)
    sources = Sources(open_catalog(lake), job.kafka, job.registry, engine.stack.region)
    return verify(TableName(DATABASE, topic), sources, LineProgress(lambda _: None))


def assert_proved(found: Verification) -> None:
    assert found.findings == ()
    assert found.complete
