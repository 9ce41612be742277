"""The real registry with what Confluent's has had since 8.0: GUIDs of schemas, contexts, aliases of subjects.

Sources: Confluent's filters of requests (context before alias), its `ContextId`, and the answers in its API reference.
Ids are those of the real registry, so they are not counted for each context.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

from tests.integration.support.servers.gate import Answer, Gate, Request

TYPE = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
ABSENT = Answer(404, TYPE, b'{"error_code": 40403, "message": "Schema not found"}')


def guid_of(found: dict[str, Any]) -> UUID:
    """Made of all that a schema is, so each context has the same."""
    parts = [found["schema"], found.get("schemaType", "AVRO"), json.dumps(found.get("references") or [])]
    return UUID(bytes=hashlib.md5("\n".join(parts).encode(), usedforsecurity=False).digest())


class GuidRegistry(Gate):
    """aliases: subjects by the names that stand for them. states_guids: False: only `/schemas/guids` knows them."""

    def __init__(self, upstream: str, *, states_guids: bool = True) -> None:
        super().__init__(upstream)
        self._base = urlsplit(upstream).path
        self._states_guids = states_guids
        self.aliases: dict[str, str] = {}

    def url_of(self, context: str) -> str:
        return f"{self.url}/contexts/{context}"

    def answer(self, request: Request) -> Answer | None:
        path = request.path.removeprefix(self._base)
        found = re.fullmatch(r"/contexts/:?(\.[^/:]*):?(/.*)", path)
        context, path = (found[1], found[2]) if found else (".", path)
        if guid := re.fullmatch(r"/schemas/guids/([^/?]+)(/ids)?(\?.*)?", path):
            ids = self._ids(UUID(guid[1]))
            if guid[2]:
                return Answer(200, TYPE, json.dumps(ids).encode())
            return (
                self.answer(replace(request, path=f"{self._base}/schemas/ids/{ids[0]['id']}"))
                if ids
                else ABSENT
            )
        if subject := re.fullmatch(r"/config/([^/?]+)", path):
            return self._config(unquote(subject[1]))
        answer = self.pass_on(replace(request, path=self._base + self._upstream_path(path, context)))
        if answer.status != 200:
            return answer
        body = self._in_context(path, json.loads(answer.body), context)
        if isinstance(body, dict) and self._states_guids:
            body |= self._guid(body, request)
        return replace(answer, body=json.dumps(body).encode())

    def _config(self, subject: str) -> Answer:
        if subject not in self.aliases:
            return Answer(404, TYPE, b'{"error_code": 40408, "message": "no configuration"}')
        return Answer(200, TYPE, json.dumps({"alias": self.aliases[subject]}).encode())

    def _upstream_path(self, path: str, context: str) -> str:
        def named(found: re.Match[str]) -> str:
            subject = unquote(found[1])
            subject = self.aliases.get(subject, subject)
            if context != "." and not subject.startswith(":"):
                subject = f":{context}:{subject}"
            return f"/subjects/{quote(subject, safe='')}"

        return re.sub(r"/subjects/([^/?]+)", named, path)

    def _in_context(self, path: str, body: Any, context: str) -> Any:
        """Lists of subjects hold those of one context, with its name before them unless it is the default one."""

        def ours(subject: str) -> bool:
            return subject.startswith(f":{context}:") if context != "." else not subject.startswith(":.")

        if path.startswith("/subjects") and isinstance(body, list) and body and isinstance(body[0], str):
            return [each for each in body if ours(each)]
        if re.match(r"/schemas/ids/\d+/versions", path):
            return [each for each in body if ours(each["subject"])]
        return body

    def _guid(self, body: dict[str, Any], request: Request) -> dict[str, str]:
        if "schema" in body:
            return {"guid": str(guid_of(body))}
        if request.method == "POST" and "id" in body:
            return {"guid": str(guid_of(self._ask(f"/schemas/ids/{body['id']}")))}
        return {}

    def _ids(self, guid: UUID) -> list[dict[str, Any]]:
        """The context and the id of each schema with this GUID."""
        found: dict[str, int] = {}
        for subject in self._ask("/subjects"):
            context = subject.split(":")[1] if subject.startswith(":.") else "."
            for number in self._ask(f"/subjects/{quote(subject, safe='')}/versions"):
                version = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{number}")
                if guid_of(version) == guid:
                    found[context] = version["id"]
        return [{"context": context, "id": number} for context, number in sorted(found.items())]

    def _ask(self, path: str) -> Any:
        answer = self.pass_on(Request("GET", self._base + path, {"Host": "registry"}, b""))
        return json.loads(answer.body) if answer.status == 200 else []
