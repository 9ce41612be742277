"""`verify` for the tables of an engine in this process."""

from __future__ import annotations

from calve.config.job import AnyRegistry, Lake, Source
from calve.config.steps import Step
from calve.names import TableName
from cli.lake import open_catalog
from cli.progress import LineProgress
from cli.verify.findings import Verification
from cli.verify.topic import Sources
from cli.verify.verification import verify
from tests.integration.support.engine import DATABASE, Engine


def proof(
    engine: Engine,
    table: str,
    *,
    value: Source | None = None,
    key: Source | None = None,
    registry: AnyRegistry | None = None,
    steps: tuple[Step, ...] = (),
    masking: str | None = None,
) -> Verification:
    job = engine.job()
    lake = Lake(DATABASE, job.lake.warehouse, endpoint=engine.stack.aws_endpoint, region=engine.stack.region)
    sources = Sources(
        open_catalog(lake),
        job.kafka,
        registry or job.registry,
        engine.stack.region,
        value or Source(),
        key,
        steps,
        masking,
    )
    return verify(TableName(DATABASE, table), sources, LineProgress(lambda _: None))


def assert_proved(found: Verification) -> None:
    assert not found.findings, found.findings
    assert found.complete
