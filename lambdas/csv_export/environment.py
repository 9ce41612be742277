"""What the stack tells the function, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Environment:
    """`endpoint_url` is set by an emulator's host alone; boto3 reads it by itself, PyIceberg has to be told."""

    deployment: str
    lake_bucket: str
    exports_prefix: str
    schedule_group: str
    scheduler_role_arn: str
    function_arn: str
    idempotency_table: str
    region: str
    endpoint_url: str | None

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        return cls(
            deployment=variables["CALVE_NAME"],
            lake_bucket=variables["LAKE_BUCKET"],
            exports_prefix=variables["EXPORTS_PREFIX"],
            schedule_group=variables["SCHEDULE_GROUP"],
            scheduler_role_arn=variables["SCHEDULER_ROLE_ARN"],
            function_arn=variables["FUNCTION_ARN"],
            idempotency_table=variables["IDEMPOTENCY_TABLE"],
            region=variables["AWS_REGION"],
            endpoint_url=variables.get("AWS_ENDPOINT_URL"),
        )

    def catalog_properties(self) -> dict[str, str]:
        """PyIceberg's settings: the Glue catalog, and Arrow's own S3 client for the files."""
        properties = {
            "type": "glue",
            "glue.region": self.region,
            "s3.region": self.region,
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        }
        if self.endpoint_url:
            properties |= {"glue.endpoint": self.endpoint_url, "s3.endpoint": self.endpoint_url}
        return properties
