"""The download page behind a real HTTP server, its file behind another: a browser sees two origins, as on AWS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from botocore.config import Config
from moto import mock_aws

from lambdas.download.handler import Downloads
from lambdas.links import Link, Links, Part
from lambdas.tokens import Keyring, Keys, new_link_id, sign
from tests.browser.chromium import Chromium, find

NOW, EXPIRES = 1_794_204_000, 1_794_808_800
FOLDER = "exports/weekly_trades/2026-11-02_2026-11-09/1"
RUN = f"{FOLDER}/0a1b2c3d"
CSV = b"symbol,volume\r\nACME,1200\r\n"
Respond = Callable[[str, str], tuple[int, dict[str, str], bytes]]


@dataclass
class Site:
    """Makes links and gives their addresses."""

    url: str
    keys: Keys
    links: Links

    def link(self, *, parts: int = 1, **changes: Any) -> str:
        names = ["weekly_trades_2026-11-02_2026-11-09.csv"]
        if parts > 1:
            names = [names[0].replace(".csv", f"_part{n:02}.csv") for n in range(1, parts + 1)]
        values: dict[str, Any] = {
            "id": new_link_id(),
            "key_id": self.keys.current,
            "export": "weekly_trades",
            "manifest": f"{FOLDER}/manifest.json",
            "parts": tuple(Part(f"{RUN}/{name}", 12345 // parts, 1_234_567, "3f9a" * 16) for name in names),
            "recipient": "hash",
            "created_at": NOW,
            "expires_at": EXPIRES,
            "max_downloads": 50,
            "title": "Weekly trades",
            "window": "2\N{EN DASH}8 November 2026",
            "time_zone": "Europe/Vilnius",
            "rows": 12345,
            "complete": True,
        }
        link = Link(**(values | changes))
        self.links.add(link)
        return f"{self.url}/{sign(self.keys, link.id, link.expires_at)}"


class Files:
    """S3 as the function sees it; its files are served by an origin of their own."""

    def __init__(self, url: str) -> None:
        self._url = url

    def head_object(self, **_: str) -> None:
        """Every file is there."""

    def generate_presigned_url(self, _: str, *, Params: dict[str, str], ExpiresIn: int) -> str:
        assert ExpiresIn == 60
        return f"{self._url}/{Params['Key']}"


@contextmanager
def serving(respond: Respond) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            status, headers, body = respond(self.command, self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """The paths hold tokens, here as anywhere."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """AWS is moto's, also in a worker whose environment names the emulator.

    moto changes AWS's credentials in the environment for its whole life. Later tests of the worker need their own again.
    """

    def file(method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        name = path.rpartition("/")[2]
        return 200, {"Content-Type": "text/csv", "Content-Disposition": f'attachment; filename="{name}"'}, CSV

    place: dict[str, Any] = {
        "config": Config(ignore_configured_endpoint_urls=True),
        "region_name": "eu-north-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }
    with mock_aws(), serving(file) as files:
        dynamodb, secrets = (boto3.client(name, **place) for name in ("dynamodb", "secretsmanager"))
        dynamodb.create_table(
            TableName="links",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        keys = Keys.first()
        secrets.create_secret(Name="keys", SecretString=keys.to_json())
        downloads = Downloads(
            bucket="lake",
            keyring=Keyring("keys", SecretsProvider(boto3_client=secrets)),
            links=Links("links", dynamodb),
            s3=Files(files),
            clock=lambda: NOW,
        )

        def page(method: str, path: str) -> tuple[int, dict[str, str], bytes]:
            answer = downloads.answer(method, path)
            return int(answer.status), answer.headers, answer.body.encode()

        with serving(page) as url:
            yield Site(url, keys, downloads.links)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find()
    if program is None:
        pytest.skip("there is no Chromium on PATH; install the package chromium")
    found = Chromium(program, tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()
