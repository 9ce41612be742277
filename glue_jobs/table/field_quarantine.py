"""Which fields of records are let into a table; `calve.decoding.field_quarantine` has the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calve.config.job import Table
from calve.decoding.field_quarantine import admitted, fields_in, leaves, only, written
from calve.decoding.record_schemas import Parts, Versions
from calve.log import event
from calve.names import TableName
from calve.schema.columns import Json
from calve.table.summary import FIELDS
from glue_jobs.iceberg import catalog


@dataclass(slots=True)
class Admission:
    """Of one table; what stays in quarantine is told once for each field, for as long as the job lives."""

    table: Table
    name: TableName
    schemas: Parts
    _told: set[str] = field(default_factory=set)

    def first(self, every: Json) -> dict[str, str]:
        """What a new table says of itself: all fields of that moment come in."""
        return written(leaves(every)) if self.table.quarantine_new_fields else {}

    def source(self, every: Json, versions: Versions, properties: Mapping[str, str]) -> Json:
        """Of all columns that the schemas have those that records are decoded to. properties: the table's."""
        return (
            only(every, self._fields(every, versions, properties))
            if self.table.quarantine_new_fields
            else every
        )

    def settle(self, every: Json, versions: Versions, main: catalog.Table) -> Json:
        """As `source`; and the table notes which fields come in now. One without quarantine keeps no list of them."""
        properties = main.properties
        known = fields_in(properties)
        if not self.table.quarantine_new_fields:
            if known is not None:
                main.set_properties({}, remove=[FIELDS])
            return every
        found = self._fields(every, versions, properties)
        if known is None or not found <= known:
            main.set_properties(written(found | (known or frozenset())))
        for path in sorted(leaves(every).keys() - found - self._told):
            self._told.add(path)
            event("table.field_quarantined", table=str(self.name), topic=self.table.topic, field=path)
        return only(every, found)

    def _fields(self, every: Json, versions: Versions, properties: Mapping[str, str]) -> frozenset[str]:
        found = self.schemas.leaves(every, versions)
        return admitted(found, fields_in(properties), self.table.steps, self.schemas.own_columns)
