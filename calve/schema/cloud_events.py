"""CloudEvents on Kafka: the attributes of an event, the column that has them, and where a record says them.

Sources: `bindings/kafka-protocol-binding.md` and `formats/json-format.md` of
https://github.com/cloudevents/spec/tree/v1.0.2/cloudevents
"""

from __future__ import annotations

import json

from calve.schema.wire import NO_ID, Schema

ATTRIBUTES = {
    "id": "identifies the event, together with its source",
    "source": "where the event happened",
    "type": "what happened",
    "subject": "the part of the source that the event is about",
    "time": "when the event happened",
    "specversion": "version of the specification of CloudEvents",
    "datacontenttype": "content type of the data",
    "dataschema": "URI of the schema of the data",
}
"""The attributes that have fields, each with its description. All others are extensions."""
REQUIRED = ("id", "source", "type", "specversion")
EXTENSIONS = "extensions"
MOST_EXTENSIONS = 100
"""An event with more is refused. Headers with one name count apart."""
DATA, BASE64 = "data", "data_base64"
"""Members of a structured event that are no attributes."""
PREFIX = "ce_"
"""The header of a binary event is this and the name of the attribute."""
CONTENT_TYPE = "content-type"
"""The header that tells structured events from binary ones, which state the content type of their data."""
STRUCTURED, OF_JSON = "application/cloudevents", "application/cloudevents+json"
"""The content type of a structured event begins so, in any case. calve reads the second one."""


def _schema() -> str:
    properties = {name: {"type": "string", "description": doc} for name, doc in ATTRIBUTES.items()}
    properties["time"]["format"] = "date-time"
    others = {
        "type": "object",
        "description": "all other attributes",
        "additionalProperties": {"type": "string"},
    }
    return json.dumps({"type": "object", "properties": {**properties, EXTENSIONS: others}})


SCHEMA = Schema(NO_ID, _schema(), "JSON")
"""The schema of the column, a struct of attributes."""
