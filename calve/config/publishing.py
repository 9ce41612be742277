"""The outputs of a deployment, resolved. Functions and jobs get them as JSON: standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from calve.names import TableName
from calve.stored import Stored

CatalogUpdate = Literal["register", "notifications"]
SnowflakeCatalog = Literal["glue_rest", "glue", "open_catalog"]
SnowflakeTables = Literal["iceberg", "linked_database"]
SNOWFLAKE_REFRESH_S = 60
SNOWFLAKE_ROTATION_DAYS = 30


class _Sorted(Stored):
    """Its text is part of a template, and changes only with its values."""

    __slots__ = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A Snowflake warehouse for queries."""

    name: str
    size: str = "XSMALL"
    auto_suspend_s: int = 60


@dataclass(frozen=True, slots=True)
class OpenCatalog:
    """An account of Snowflake Open Catalog; `secret` is a reference to `client_id` and `client_secret`."""

    uri: str
    warehouse: str
    secret: str


@dataclass(frozen=True, slots=True)
class Snowflake(_Sorted):
    """A Snowflake account that reads the tables. Names are as in Snowflake, mostly in upper case.

    url: of its SQL API. secret: reference to the administrator's key pair. warehouse: None: none is made.
    reader: the role for queries; publisher: of `service_user`, which refreshes the tables.
    volume, integration: the names of the external volume and the catalog integration.
    iam_user_arn: Snowflake's IAM user, if trust is static; None: the deployment asks Snowflake.
    """

    account: str
    url: str
    user: str
    secret: str
    admin_role: str
    database: str
    schema: str
    warehouse: Warehouse | None
    reader: str
    publisher: str
    service_user: str
    volume: str
    integration: str
    catalog: SnowflakeCatalog = "glue_rest"
    open_catalog: OpenCatalog | None = None
    tables: SnowflakeTables = "iceberg"
    refresh_s: int = SNOWFLAKE_REFRESH_S
    iam_user_arn: str | None = None
    rotate_after_days: int = SNOWFLAKE_ROTATION_DAYS

    @property
    def linked(self) -> bool:
        """Whether Snowflake finds the tables itself, in a database that follows the catalog."""
        return self.tables == "linked_database"


@dataclass(frozen=True, slots=True)
class CatalogBootstrap:
    """How a Polaris catalog is made. secret, scope: of an administrator. role_arn, external_id: the role that reads tables."""

    secret: str
    management_uri: str
    scope: str = "PRINCIPAL_ROLE:ALL"
    role_arn: str | None = None
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class IcebergRest(_Sorted):
    """An Iceberg REST catalog that is synchronized with Glue.

    namespace: None: the Glue database of each table. secret: a reference to `client_id` and `client_secret`.
    scope, token_url: of OAuth. update: how the catalog gets newer metadata. bootstrap: None: the catalog exists.
    """

    uri: str
    warehouse: str | None = None
    namespace: str | None = None
    secret: str | None = None
    scope: str | None = None
    token_url: str | None = None
    update: CatalogUpdate = "register"
    bootstrap: CatalogBootstrap | None = None


@dataclass(frozen=True, slots=True)
class Delta(_Sorted):
    """A Delta log beside each table. It has no settings."""


@dataclass(frozen=True, slots=True)
class OpenLineage(_Sorted):
    """A receiver of OpenLineage events, by HTTP. secret: a reference to `api_key`; None: it asks for none.

    endpoint: the path below `url`. namespace: of the jobs in the events.
    """

    url: str
    namespace: str
    endpoint: str = "api/v1/lineage"
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """What is published. tables: without dead letters, and tables of patterns; patterns: expressions for their names."""

    tables: tuple[TableName, ...]
    patterns: tuple[str, ...] = ()
    snowflake: Snowflake | None = None
    iceberg_rest: IcebergRest | None = None
    delta: Delta | None = None
    openlineage: OpenLineage | None = None


Window = Literal["previous_day", "previous_week", "previous_month"]
Function = Literal["sum", "count", "min", "max"]
Channel = Literal["sns", "ses"]
Formulas = Literal["guard", "keep"]
LinkKind = Literal["public", "console"]
EXPORTS = "exports/"
"""The folder of all exports in the lake."""


def topic_parameter(deployment: str, export: str) -> str:
    """The parameter of Systems Manager that holds the SNS topic of an export; `*`: of any."""
    return f"/calve/{deployment}/exports/{export}/topic"


def export_readers(deployment: str) -> str:
    """The policy for people who open exported files in the console; the region follows in its name."""
    return f"{deployment}-export-readers"


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregated column: `function` over `column`; `count` without a column counts rows."""

    name: str
    function: Function
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Csv:
    """The format of the file. `row_limit`: of one part, without its header: a spreadsheet has at most 1,048,576 rows.

    `formulas`: whether a text that a spreadsheet would run as a formula gets an apostrophe, or is kept as it is.
    """

    delimiter: str = ","
    bom: bool = False
    gzip: bool = False
    system_columns: bool = False
    row_limit: int = 1_000_000
    formulas: Formulas = "guard"


@dataclass(frozen=True, slots=True)
class Export(_Sorted):
    """One table's window as a CSV file. `columns` empty: all. `filter`: a row filter in PyIceberg's syntax.

    `database` empty: that of the deployment's Kafka cluster, which each run finds in Glue.
    `time_column`: a path such as `created_at` or `_kafka.timestamp`. A week begins on Monday; windows are in `time_zone`.
    `schedule`: an EventBridge expression, in `time_zone`. `sender`: only for `ses`.
    `link_kind`: `public`: anyone with the link gets the file; `console`: the reader signs in to AWS.
    """

    name: str
    database: str
    table: str
    time_column: str
    schedule: str
    recipients: tuple[str, ...]
    window: Window = "previous_week"
    time_zone: str = "UTC"
    columns: tuple[str, ...] = ()
    filter: str | None = None
    group_by: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    csv: Csv = Csv()
    channel: Channel = "sns"
    sender: str | None = None
    reply_to: str | None = None
    wait_s: float = 7200.0
    recheck_windows: int = 2
    keep_days: int = 90
    link_kind: LinkKind = "public"
    link_days: int = 7
    max_downloads: int = 50

    @property
    def source(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True, slots=True)
class Emit:
    """An output topic for the rows of a table.

    key: columns; none: the record's key. Partitions, retention and cleanup policy apply only if calve creates the topic.
    retention_ms: None: the broker's default. schema_id: where a record names its schema: an id before the value, or a GUID in a
    header.
    """

    topic: str
    format: Literal["avro", "json"] = "avro"
    key: tuple[str, ...] = ()
    partitions: int = 6
    retention_ms: int | None = None
    cleanup_policy: Literal["delete", "compact"] = "delete"
    schema_id: Literal["prefix", "header"] = "prefix"


@dataclass(frozen=True, slots=True)
class Announce:
    """Announced counts of a commit's rows, by the values of a column. alert_on: values that are mailed to operators at once."""

    count_by: str
    alert_on: tuple[str, ...] = ()
