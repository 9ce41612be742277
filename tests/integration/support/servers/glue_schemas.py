"""The AWS Glue Schema Registry as an HTTP server: moto's, with `ListSchemas`, which moto lacks; and values framed for it."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import boto3
from moto.core.request import Request
from moto.glue.models import glue_backends
from moto.glue.responses import GlueResponse
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

REGION = "us-east-1"
ACCOUNT = "123456789012"
PAGE = 2


@dataclass
class GlueSchemas:
    """`refuse` makes the next answers errors of this code; `asked` are the operations, in their order."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    refuse: str | None = None
    client: Any = None
    name: str = field(default_factory=lambda: f"r{uuid4().hex[:8]}")

    def answer(self, environ: Any, start: Any) -> Any:
        request = Request(environ)
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        self.asked.append(operation)
        if self.refuse:
            body = json.dumps({"__type": self.refuse, "message": "refused"})
            return Response(body, 400, content_type="application/x-amz-json-1.1")(environ, start)
        if operation == "ListSchemas":
            body = json.dumps(self._listed(request.get_json(force=True)))
            return Response(body, content_type="application/x-amz-json-1.1")(environ, start)
        status, headers, body = GlueResponse.dispatch(request, request.url, request.headers)
        return Response(body, status, dict(headers))(environ, start)

    def _listed(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Pages of two, so that whoever does not turn them misses schemas."""
        registry = glue_backends[ACCOUNT][REGION].registries[asked["RegistryId"]["RegistryName"]]
        names = sorted(registry.schemas)
        first = int(asked.get("NextToken", 0))
        page = [{"SchemaName": name, "RegistryName": self.name} for name in names[first : first + PAGE]]
        return {"Schemas": page} | ({"NextToken": str(first + PAGE)} if first + PAGE < len(names) else {})

    def register(self, name: str, schema: Any, data_format: str = "AVRO") -> UUID:
        """The id of a new version; the first one makes the schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        held = glue_backends[ACCOUNT][REGION].registries[self.name].schemas
        if name in held:
            made = self.client.register_schema_version(
                SchemaId={"RegistryName": self.name, "SchemaName": name}, SchemaDefinition=text
            )
        else:
            made = self.client.create_schema(
                RegistryId={"RegistryName": self.name},
                SchemaName=name,
                DataFormat=data_format,
                Compatibility="NONE",
                SchemaDefinition=text,
            )
        return UUID(made["SchemaVersionId"])


@contextmanager
def serving() -> Iterator[GlueSchemas]:
    """A server with one registry; clients find it by `AWS_ENDPOINT_URL_GLUE`."""
    schemas = GlueSchemas()
    server = make_server("127.0.0.1", 0, schemas.answer, threaded=True, request_handler=_Silent)
    schemas.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    schemas.client = boto3.client(
        "glue",
        endpoint_url=schemas.url,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    schemas.client.create_registry(RegistryName=schemas.name)
    try:
        yield schemas
    finally:
        server.shutdown()
        server.server_close()


class _Silent(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


def framed(version: UUID, payload: bytes, *, compressed: bool = False) -> bytes:
    """A value as `SerializationDataEncoder` of the AWS Glue Schema Registry's serializer lays it out."""
    header = b"\x03" + (b"\x05" if compressed else b"\x00") + version.bytes
    return header + (zlib.compress(payload) if compressed else payload)
