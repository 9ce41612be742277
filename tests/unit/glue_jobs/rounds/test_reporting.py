"""When a run acknowledges its generation: as soon as every table is open, or is known to be in trouble beside open ones."""

from types import SimpleNamespace
from typing import Any

import pytest

from calve.config.job import Job, Kafka, Lake
from calve.errors import topic_missing
from glue_jobs.rounds.reporting import Reporter

JOB = Job("trading", "main", Kafka("b:9092"), None, Lake("trading", "s3://lake"), ())
OPEN, OPENING = (True, "pending", 0), (False, "pending", 0)
TRYING, SUSPENDED = (False, "pending", 2), (False, "suspended", 0)
WITHOUT_TOPIC = (False, "pending", 1, topic_missing("orders", "b:9092"))


def loop(is_open: bool, state: str, failures: int, troubled: Exception | None = None) -> SimpleNamespace:
    opener = SimpleNamespace(is_open=is_open)
    return SimpleNamespace(opener=opener, state=state, failures=failures, troubled=troubled)


@pytest.mark.parametrize(
    ("tables", "acknowledges"),
    [
        ([OPEN, OPEN], True),
        ([OPEN, OPENING], False),
        ([OPEN, TRYING, SUSPENDED], True),
        ([TRYING], False),
        ([SUSPENDED, TRYING], False),
        ([WITHOUT_TOPIC], True),
        ([WITHOUT_TOPIC, TRYING], False),
        ([WITHOUT_TOPIC, SUSPENDED], False),
        ([WITHOUT_TOPIC, OPEN], True),
        ([WITHOUT_TOPIC, OPENING], False),
        ([], True),
    ],
)
def test_tables_of_a_run(tables: list[Any], acknowledges: bool) -> None:
    loops = SimpleNamespace(tables=[loop(*each) for each in tables])
    assert Reporter(JOB, object=None, loops=loops)._acknowledges() is acknowledges  # type: ignore[arg-type]


def test_nothing_is_acknowledged_before_the_loops_of_the_tables_exist() -> None:
    assert not Reporter(JOB, object=None)._acknowledges()  # type: ignore[arg-type]
