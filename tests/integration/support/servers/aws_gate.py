"""The AWS emulator behind a gate that refuses, loses or keeps back what passes between the engine and AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.integration.support.servers.gate import Answer, Gate, Request

UNAVAILABLE = Answer(503, {"Content-Type": "application/xml"}, b"<Error><Code>SlowDown</Code></Error>")
FAULT = Answer(500, {"Content-Type": "application/x-amz-json-1.1"}, b'{"__type":"InternalServiceException"}')


class AwsGate(Gate):
    """Passes everything on, but for what a test interferes with."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self._concerns: Callable[[Request], bool] = lambda _: False
        self._instead: Callable[[Request], Answer | None] = self.pass_on

    @contextmanager
    def meanwhile(
        self, concerns: Callable[[Request], bool], instead: Callable[[Request], Answer | None]
    ) -> Iterator[None]:
        """Answer certain requests otherwise for as long as the block runs; None closes the connection."""
        self._instead, self._concerns = instead, concerns
        try:
            yield
        finally:
            self._concerns = lambda _: False

    def answer(self, request: Request) -> Answer | None:
        return self._instead(request) if self._concerns(request) else self.pass_on(request)


def is_glue(request: Request, action: str = "") -> bool:
    return request.headers.get("X-Amz-Target", "").startswith(f"AWSGlue.{action}")


def is_table_update(request: Request) -> bool:
    return is_glue(request, "UpdateTable")


def is_store(request: Request) -> bool:
    return "X-Amz-Target" not in request.headers
