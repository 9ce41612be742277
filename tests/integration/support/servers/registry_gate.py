"""The real registry behind basic authentication, which Confluent Cloud demands and Apicurio by itself does not."""

from __future__ import annotations

import base64

from tests.integration.support.servers.gate import Answer, Gate, Request


class RegistryGate(Gate):
    """Lets requests pass that bring the one user's password."""

    def __init__(self, upstream: str, username: str, password: str) -> None:
        super().__init__(upstream)
        self._expected = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()

    def answer(self, request: Request) -> Answer | None:
        if request.headers.get("Authorization") != self._expected:
            return Answer(401, {"WWW-Authenticate": 'Basic realm="registry"'})
        return self.pass_on(request)
