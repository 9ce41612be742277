"""Helper columns beside those of a record, from the source to the table: the one list for all rooms.

Their names have a colon, or belong to a frame that has no data columns yet: no field's name has a colon (`calve.names`).
"""

from __future__ import annotations

from calve.config.job import PartName

REFUSED = "calve:refused"
"""Why the source cannot deliver the record, one of `calve.schema.columns.UNDELIVERED`; null for others."""
REJECT = "calve:reject"
"""Why the record is no row; null for others."""
SIZE = "calve:size"
"""Bytes of key and value."""
OTHER = "calve:other"
"""The place, among the schemas of other tables, of the schema that the record names; null for others."""
RAW: dict[PartName, str] = {"value": "calve:raw", "key": "calve:raw_key"}
"""Value and key as received, where the wire format has compression."""
DECODED: dict[PartName, str] = {"value": "decoded", "key": "calve:key"}
"""Structs of `value` and `end`."""
RECEIVED = "calve:received"
"""The record's bytes as received: key, value and headers; `plain`, `plain_key`: value and key without compression."""
SCHEMA_ID = "schema_id"
TOMBSTONE = "calve:tombstone"
"""True: the record deletes the row of its key."""
IDLE = "calve:idle"
"""True: the change event changes no row."""
FILTERED = "calve:filtered"
"""True: a step has left the row out."""
