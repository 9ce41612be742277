"""What workers tell the driver: an error of calve's comes back as it was, of any other only its class and place."""

import json

import pytest
from py4j.protocol import Py4JJavaError

from calve.errors import Fatal, Retryable, Suspended
from glue_jobs.process.workers import MARK, Unexpected, errors_by_value, errors_of_workers


def carried(error: Exception) -> None:
    """As a worker's error reaches the driver: in the text of an exception of Spark's, with lines around it."""
    with pytest.raises(RuntimeError) as raised, errors_by_value():
        raise error
    text = f"[PYTHON_EXCEPTION] Traceback\n  {raised.value}\nDriver stacktrace: {{}}"
    assert raised.value.__cause__ is None
    with errors_of_workers():
        raise Raised(text)


class Raised(Py4JJavaError):  # type: ignore[misc]
    """An exception of the JVM, as text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    "error",
    [
        Suspended("offsets_expired", 'topic "a" {no} longer\nholds it', fix="look"),
        Retryable("no answer"),
        Fatal("refused \u20ac", fix=None),
    ],
)
def test_an_error_of_calve_comes_back(error: Suspended | Retryable | Fatal) -> None:
    with pytest.raises(type(error)) as found:
        carried(error)
    assert (type(found.value), str(found.value)) == (type(error), str(error))
    if isinstance(error, Suspended):
        assert found.value.code == error.code  # type: ignore[attr-defined]


def test_of_another_error_no_text_is_told() -> None:
    with pytest.raises(Unexpected, match=r"^ValueError at test_workers\.py:\d+$") as found:
        carried(ValueError("4111 1111"))
    assert "4111" not in repr(found.value.__context__)


def test_other_errors_of_spark_stay() -> None:
    with pytest.raises(Raised, match="something else"), errors_of_workers():
        raise Raised("something else")


def test_what_is_carried_is_the_mark_and_json() -> None:
    with pytest.raises(RuntimeError) as raised, errors_by_value():
        raise Retryable("a")
    assert json.loads(str(raised.value).removeprefix(MARK)) == {
        "kind": "Retryable",
        "arguments": ["a"],
        "fix": None,
    }
