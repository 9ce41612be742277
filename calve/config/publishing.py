"""What leaves a deployment, resolved: published tables and scheduled exports. Functions get it as JSON.

`calve.settings` makes these values from `publish:` and `exports:`; standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from calve.names import TableName

CatalogUpdate = Literal["register", "notifications"]
SnowflakeCatalog = Literal["glue_rest", "glue", "open_catalog"]
SnowflakeTables = Literal["iceberg", "linked_database"]
SNOWFLAKE_REFRESH_S = 60
SNOWFLAKE_ROTATION_DAYS = 30


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A warehouse of Snowflake, for those who query."""

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
class Snowflake:
    """An account of Snowflake that reads the tables. Names stand as Snowflake has them, mostly in capitals.

    url: of its SQL API. secret: reference to the administrator's key pair. warehouse: None: none is made.
    reader: the role of those who query; publisher: of `service_user`, which keeps the tables current.
    volume, integration: the names of the external volume and the catalog integration.
    iam_user_arn: Snowflake's IAM user, where trust is static; None: the deployment asks Snowflake for it.
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
        """Whether Snowflake finds the tables by itself, in a database that follows the catalog."""
        return self.tables == "linked_database"

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw: dict[str, Any] = json.loads(text)
        warehouse, catalog = raw["warehouse"], raw["open_catalog"]
        made = {
            "warehouse": Warehouse(**warehouse) if warehouse else None,
            "open_catalog": OpenCatalog(**catalog) if catalog else None,
        }
        return cls(**(raw | made))


@dataclass(frozen=True, slots=True)
class CatalogBootstrap:
    """How a catalog of Polaris is made.

    secret, scope: of an administrator. management_uri: of Polaris' management API. role_arn, external_id: the role by which
    Polaris reads the tables.
    """

    secret: str
    management_uri: str
    scope: str = "PRINCIPAL_ROLE:ALL"
    role_arn: str | None = None
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class IcebergRest:
    """An Iceberg REST catalog that is kept equal to Glue.

    namespace: None: the name of each table's Glue database. secret: a reference to `client_id` and `client_secret`.
    scope, token_url: of OAuth. update: how the catalog is told of newer metadata. bootstrap: None: it is there.
    """

    uri: str
    warehouse: str | None = None
    namespace: str | None = None
    secret: str | None = None
    scope: str | None = None
    token_url: str | None = None
    update: CatalogUpdate = "register"
    bootstrap: CatalogBootstrap | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        bootstrap = raw["bootstrap"]
        return cls(**raw | {"bootstrap": CatalogBootstrap(**bootstrap) if bootstrap else None})


@dataclass(frozen=True, slots=True)
class Publish:
    """What is published where.

    tables: those of the deployment but for dead letters, and for tables of topics by expression. patterns: expressions for the
    names of those.
    """

    tables: tuple[TableName, ...]
    patterns: tuple[str, ...] = ()
    snowflake: Snowflake | None = None
    iceberg_rest: IcebergRest | None = None


Window = Literal["previous_day", "previous_week", "previous_month"]
Function = Literal["sum", "count", "min", "max"]
Channel = Literal["sns", "ses"]
Formulas = Literal["guard", "keep"]
EXPORTS = "exports/"
"""The folder of the lake with the files of all exports."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregated column: `function` over `column`; `count` without a column counts rows."""

    name: str
    function: Function
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Csv:
    """How the file is written. `row_limit` is of one part, without its header: a spreadsheet ends at 1,048,576 rows.

    `formulas`: whether a text that a spreadsheet would run as a formula gets an apostrophe before it, or is kept as it is.
    """

    delimiter: str = ","
    bom: bool = False
    gzip: bool = False
    system_columns: bool = False
    row_limit: int = 1_000_000
    formulas: Formulas = "guard"


@dataclass(frozen=True, slots=True)
class Export:
    """One table's window as a CSV file. `columns` empty: all; `filter` is a row filter in PyIceberg's notation.

    `database` empty: the one of the deployment's Kafka cluster, which each run finds in Glue.

    `time_column` is a path such as `created_at` or `_kafka.timestamp`. A week begins on Monday; windows are those of `time_zone`.
    `schedule` is an EventBridge expression, evaluated in `time_zone`. `sender` is needed by `ses` alone.
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
    link_days: int = 7
    max_downloads: int = 50

    @property
    def source(self) -> str:
        """The table as messages name it."""
        return f"{self.database}.{self.table}" if self.database else self.table

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw: dict[str, Any] = json.loads(text)
        lists = {key: tuple(raw[key]) for key in ("recipients", "columns", "group_by")}
        measures = tuple(Measure(**each) for each in raw["measures"])
        return cls(**(raw | lists | {"measures": measures, "csv": Csv(**raw["csv"])}))


@dataclass(frozen=True, slots=True)
class Emit:
    """A topic that gets the rows which a table gets.

    key: columns; none: the record's key as the table has it. The others are what the topic is made with, if it is not there.
    retention_ms: None: the broker's.
    """

    topic: str
    format: Literal["avro", "json"] = "avro"
    key: tuple[str, ...] = ()
    partitions: int = 6
    retention_ms: int | None = None
    cleanup_policy: Literal["delete", "compact"] = "delete"


@dataclass(frozen=True, slots=True)
class Announce:
    """What the announcements of a table's commits say beside the usual: rows by the values of a column.

    alert_on: the values that operators hear of at once.
    """

    count_by: str
    alert_on: tuple[str, ...] = ()
