"""The shape of `publish`."""

from typing import Self

from pydantic import model_validator

from calve.settings.iceberg_rest import IcebergRestSection
from calve.settings.problems import InvalidParts, Problem
from calve.settings.section import Section
from calve.settings.snowflake import SnowflakeSection


class PublishSection(Section):
    """Who else gets the tables. Absent: they are in Glue alone."""

    snowflake: SnowflakeSection | None = None
    """See `publish.snowflake`"""
    iceberg_rest: IcebergRestSection | None = None
    """See `publish.iceberg_rest`"""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.snowflake is None and self.iceberg_rest is None:
            fix = "name `snowflake:` or `iceberg_rest:`, or remove `publish`"
            raise InvalidParts([Problem((), "names nobody to publish to", fix)])
        return self
