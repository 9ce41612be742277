"""A receiver of OpenLineage events in place of Marquez, DataHub or another catalog of data: it prints what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

PORT = 5050


def lines(event: dict[str, Any]) -> Iterator[str]:
    """A table, and each of its columns with the fields that it comes from."""
    for table in event["outputs"]:
        lineage = table["facets"]["columnLineage"]
        rows = table["outputFacets"]["outputStatistics"]["rowCount"]
        yield f"{event['job']['name']}: {rows} rows from {', '.join(each['name'] for each in event['inputs'])}"
        for column, found in lineage["fields"].items():
            yield f"  {column:15} {', '.join(map(shown, found['inputFields']))}"
        yield f"  {'(rows)':15} {', '.join(map(shown, lineage['dataset']))}"


def shown(field: dict[str, Any]) -> str:
    [how] = field["transformations"]
    return f"{field['field']} ({'masked' if how['masking'] else how['subtype'].lower()})"


class Receiver(BaseHTTPRequestHandler):
    """Takes every event."""

    def do_POST(self) -> None:
        """An event at `/api/v1/lineage`."""
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for line in lines(event):
            print(line, flush=True)  # noqa: T201 a script
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The events are enough."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
