"""CloudFormation's side of a custom resource: requests, and the loopback address where the answers arrive."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class CloudFormation:
    url: str = ""
    answers: list[dict[str, Any]] = field(default_factory=list)
    content_types: list[str | None] = field(default_factory=list)
    refuse: int = 0

    def request(self, kind: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "RequestType": kind,
            "ResponseURL": f"{self.url}/answer?Signature=SECRET",
            "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/calve-ingest/1",
            "RequestId": "request-1",
            "ResourceType": "Custom::Calve",
            "LogicalResourceId": "Resource",
            "ResourceProperties": {"ServiceToken": "arn:aws:lambda:us-east-1:123456789012:function:function"}
            | properties,
            **more,
        }


@contextmanager
def cloudformation() -> Iterator[CloudFormation]:
    side = CloudFormation()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if side.refuse:
                side.refuse -= 1
                self.send_response(503)
            else:
                assert len(body) <= 4096, "CloudFormation refuses such an answer"
                side.answers.append(json.loads(body))
                side.content_types.append(self.headers["Content-Type"])
                self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    side.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield side
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
