"""All helper columns beside those of a record, from the source to the table.

Their names have a colon, or belong to a frame without data columns: no field's name has a colon (`calve.names`).
"""

from __future__ import annotations

from calve.config.job import PartName

REFUSED = "calve:refused"
"""Why the source cannot deliver the record, one of `calve.schema.columns.UNDELIVERED`; null for others."""
REJECT = "calve:reject"
"""The reject reason; null for good records."""
SIZE = "calve:size"
"""Bytes of key and value."""
OTHER = "calve:other"
"""The index of the record's schema among those of other tables; null for others."""
DECODED: dict[PartName, str] = {"value": "decoded", "key": "calve:key"}
"""Structs of `value` (the columns; null if bad), `reason`, `number` (of the schema), `other` and `size` (null for null)."""
RECEIVED = "calve:received"
"""The record's bytes as received: key, value and headers."""
SCHEMA_ID = "schema_id"
TOMBSTONE = "calve:tombstone"
"""True: the record deletes the row of its key."""
IDLE = "calve:idle"
"""True: the change event changes no row."""
FILTERED = "calve:filtered"
"""True: a step filtered the row."""
RULE = "calve:rule"
"""The number of the step that filtered the row, or rejected it for an expectation; null for other rows."""
