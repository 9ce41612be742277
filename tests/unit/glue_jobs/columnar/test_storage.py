"""Where files go: to the endpoint that every client of AWS in the process is told."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from glue_jobs.iceberg.storage import Storage


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A server, and the paths that were put there."""
    paths: list[str] = []

    class Put(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            while self.rfile.readline().strip():
                """What comes after the body: its checksum."""
            paths.append(self.path)
            self.send_response(200)
            self.send_header("ETag", '"one"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Put) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_of_the_environment_is_taken_with_buckets_in_the_path(
    asked: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    url, paths = asked
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    monkeypatch.setenv(name, url)
    with Storage(f"region-{name[-2:].lower()}-1").create("s3://bucket/folder/file") as file:
        file.write(b"rows")
    assert paths == ["/bucket/folder/file"]
