"""`verify` for the tables of an engine in this process."""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.catalog import Catalog

from calve.config.job import AnyRegistry, Source
from calve.config.steps import Step
from calve.errors import CalveError
from calve.names import TableName
from cli.lake import load, open_catalog
from cli.progress import LineProgress
from cli.verify.digests import verify_digests
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
    """By the topic. Where that finds no fault, the digests of the table must find none, either."""
    job = engine.job()
    sources = Sources(
        _catalog(engine),
        job.kafka,
        registry or job.registry,
        engine.stack.region,
        value or Source(),
        key,
        steps,
        masking,
    )
    found = verify(TableName(DATABASE, table), sources, LineProgress(lambda _: None))
    if found.ok:
        with suppress(CalveError):  # no digests
            assert proof_of_digests(engine, table).findings == ()
    return found


def proof_of_digests(engine: Engine, table: str) -> Verification:
    held = load(_catalog(engine), TableName(DATABASE, table))
    assert held is not None
    return verify_digests(held, LineProgress(lambda _: None))


def _catalog(engine: Engine) -> Catalog:
    return open_catalog(engine.job().lake)


def assert_proved(found: Verification) -> None:
    assert not found.findings, found.findings
    assert found.complete
