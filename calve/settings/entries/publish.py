"""The sections `publish` and `exports`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from calve.config.publishing import (
    SNOWFLAKE_REFRESH_S,
    SNOWFLAKE_ROTATION_DAYS,
    CatalogBootstrap,
    CatalogUpdate,
    Channel,
    Formulas,
    IcebergRest,
    OpenCatalog,
    Snowflake,
    SnowflakeCatalog,
    SnowflakeTables,
    Warehouse,
    Window,
)
from calve.settings import fields
from calve.settings.fields import Section
from calve.settings.problems import Problem

MANAGEMENT = "/api/management/v1"
OF_POLARIS = "/api/catalog"


class BootstrapSection(Section):
    """A deploy makes the catalog at a server of Polaris or Snowflake Open Catalog: an EXTERNAL catalog, a principal whose
    credentials are kept in Secrets Manager, a role for it, one in the catalog with `CATALOG_MANAGE_CONTENT`, and the grants.
    The end of the deployment removes exactly these.
    """

    secret: fields.Secret
    """`client_id` and `client_secret` of an administrator; see Secrets"""
    scope: fields.Text = "PRINCIPAL_ROLE:ALL"
    """The administrator's scope. Default: `PRINCIPAL_ROLE:ALL`"""
    management_uri: fields.Url | None = None
    """Address of the management API. Default: `/api/management/v1` where `uri` ends in `/api/catalog`"""
    role_arn: fields.RoleArn | None = None
    """IAM role by which Polaris reads the lake. Default: Polaris reads it with what its server has"""
    external_id: fields.Text | None = None
    """External id of that role's trust. Default: none"""


class IcebergRestSection(Section):
    """An Iceberg REST catalog that is kept equal to Glue; see docs/iceberg_rest.md."""

    uri: fields.Url
    """Address of the catalog, without `/v1`: `https://host/api/catalog` of Polaris,
    `https://ACCOUNT.snowflakecomputing.com/polaris/api/catalog` of Snowflake Open Catalog"""
    warehouse: fields.Text | None = None
    """Name of the catalog at that server. Default: the server's only one"""
    namespace: fields.Namespace | None = None
    """Namespace of the tables there. Default: the Glue database, which is the cluster id with `lake.namespace: cluster_id`"""
    secret: fields.Secret | None = None
    """`client_id` and `client_secret` of OAuth; see Secrets. Default: no authentication"""
    scope: fields.Text | None = None
    """Scope to ask for, such as `PRINCIPAL_ROLE:ALL` or `catalog`. Default: none"""
    token_url: fields.Url | None = None
    """Token endpoint. Default: the catalog's own, `/v1/oauth/tokens` below `uri`"""
    update: CatalogUpdate | None = None
    """How a table there is moved to newer metadata: `register` (with `overwrite`, as Iceberg's specification has it), or
    `notifications` (the EXTERNAL catalogs of Polaris and Snowflake Open Catalog). Default: `notifications` with `bootstrap`,
    else `register`"""
    bootstrap: BootstrapSection | None = None
    """See `publish.iceberg_rest.bootstrap`. Default: the catalog is there"""

    def problems(self) -> Iterator[Problem]:
        if self.bootstrap is None:
            for key in ("scope", "token_url"):
                if getattr(self, key) and not self.secret:
                    yield Problem((key,), "has no use without `secret`", "add `secret: aws:SECRET_ID`")
            return
        if self.secret:
            fix = "remove it; the administrator's is `bootstrap.secret`"
            yield Problem(("secret",), "is made by `bootstrap`", fix)
        if self.warehouse is None:
            yield Problem(("warehouse",), "is missing: the catalog gets a name", "add `warehouse: NAME`")
        if self.management_uri is None:
            reason = f"is missing: `uri` does not end in {OF_POLARIS}"
            fix = "add `management_uri: https://host/api/management/v1`"
            yield Problem(("bootstrap", "management_uri"), reason, fix)

    @property
    def management_uri(self) -> str | None:
        """The address of Polaris' management API."""
        if self.bootstrap and self.bootstrap.management_uri:
            return self.bootstrap.management_uri
        if self.uri.endswith(OF_POLARIS):
            return self.uri.removesuffix(OF_POLARIS) + MANAGEMENT
        return None

    def resolved(self) -> IcebergRest:
        """What it stands for."""
        made = self.bootstrap and fields.resolved(
            CatalogBootstrap, self.bootstrap, management_uri=self.management_uri
        )
        update = self.update or ("notifications" if made else "register")
        return fields.resolved(IcebergRest, self, update=update, bootstrap=made)


class WarehouseSection(Section):
    """A warehouse for those who query. Absent: none is made."""

    name: fields.SnowflakeName | None = None
    """Its name. Default: from the deployment's"""
    size: Literal["xsmall", "small", "medium", "large", "xlarge"] = "xsmall"
    """`xsmall`, `small`, `medium`, `large` or `xlarge`. Default: `xsmall`"""
    auto_suspend: fields.Duration = Field(default=60.0, ge=30, le=86_400)
    """How long it waits for a query until it stops, and costs nothing. Default: `60s`"""


class OpenCatalogSection(Section):
    """The account of Snowflake Open Catalog that holds the tables; `publish.iceberg_rest` brings them there."""

    uri: fields.Url
    """Its REST address, such as `https://ORG-ACCOUNT.snowflakecomputing.com/polaris/api/catalog`"""
    warehouse: fields.Text
    """Name of the catalog"""
    secret: fields.Secret
    """`client_id` and `client_secret` of a connection; see Secrets"""


class SnowflakeSection(Section):
    """An account of Snowflake that reads the tables; see docs/snowflake.md. Names are folded to capitals, as Snowflake does."""

    account: fields.SnowflakeAccount
    """Account identifier, such as `myorg-myaccount`"""
    url: fields.Url | None = None
    """Address of its SQL API, where it has another, as with PrivateLink. Default: `https://ACCOUNT.snowflakecomputing.com`"""
    user: fields.SnowflakeName
    """User that makes the objects"""
    secret: fields.Secret
    """`private_key` of that user, in PEM; see Secrets"""
    admin_role: fields.SnowflakeName = "ACCOUNTADMIN"
    """Role in which it makes them. Default: `ACCOUNTADMIN`"""
    database: fields.SnowflakeName | None = None
    """Database of the tables. Default: from the deployment's name"""
    schema_: fields.SnowflakeName | None = Field(default=None, alias="schema")
    """Schema of the tables. Default: from `lake.database`"""
    warehouse: WarehouseSection | None = None
    """See `publish.snowflake.warehouse`. Default: none is made"""
    reader_role: fields.SnowflakeName | None = None
    """Role that may query the tables; grant it to people. Default: `CALVE_NAME_READER`"""
    publisher_role: fields.SnowflakeName | None = None
    """Role of the service user. Default: `CALVE_NAME_PUBLISHER`"""
    service_user: fields.SnowflakeName | None = None
    """User that keeps the tables current. Default: `CALVE_NAME`"""
    catalog: SnowflakeCatalog = "glue_rest"
    """Where Snowflake finds the tables: `glue_rest`, `glue` (the classic integration) or `open_catalog`. Default: `glue_rest`"""
    open_catalog: OpenCatalogSection | None = None
    """See `publish.snowflake.open_catalog`"""
    tables: SnowflakeTables = "iceberg"
    """`iceberg`: a table for each; `linked_database`: a read-only database that follows the catalog. Default: `iceberg`"""
    refresh_interval: fields.Duration = Field(default=float(SNOWFLAKE_REFRESH_S), ge=30, le=86_400)
    """How often Snowflake itself looks for changes. Default: `60s`"""
    iam_user_arn: fields.IamUserArn | None = None
    """Snowflake's IAM user, for trust that no function may change. Default: the deployment asks Snowflake"""
    rotate_after_days: int = Field(default=SNOWFLAKE_ROTATION_DAYS, ge=1, le=365)
    """Days after which the service user gets a new key. Default: `30`"""

    def problems(self) -> Iterator[Problem]:
        is_open, linked = self.catalog == "open_catalog", self.tables == "linked_database"
        if is_open and self.open_catalog is None:
            yield Problem(("open_catalog",), "is missing: the catalog is there", "name it")
        if self.open_catalog and not is_open:
            fix = "remove it, or use `catalog: open_catalog`"
            yield Problem(("open_catalog",), f"has no use with {self.catalog}", fix)
        if self.catalog == "glue" and self.iam_user_arn:
            reason = "needs `glue_rest`: with `glue`, Snowflake makes an id that nobody knows before"
            yield Problem(("iam_user_arn",), reason, "remove it, or use `catalog: glue_rest`")
        if linked and self.catalog == "glue":
            yield Problem(("tables",), "needs a REST catalog", "use `catalog: glue_rest`")
        if linked and self.schema_:
            reason = "has no use with a linked database, which has the catalog's own"
            yield Problem(("schema",), reason, "remove it")

    def resolved(self, deployment: str, lake_database: str) -> Snowflake:
        """The account as the functions and the stacks see it."""
        own = f"calve_{deployment}"

        def named(given: str | None, default: str) -> str:
            return (given or default.replace("-", "_")).upper()

        warehouse = self.warehouse
        return fields.resolved(
            Snowflake,
            self,
            url=self.url or f"https://{self.account.lower().replace('_', '-')}.snowflakecomputing.com",
            user=self.user.upper(),
            admin_role=self.admin_role.upper(),
            database=named(self.database, deployment),
            schema=named(self.schema_, lake_database),
            warehouse=Warehouse(
                named(warehouse.name, own), warehouse.size.upper(), int(warehouse.auto_suspend)
            )
            if warehouse
            else None,
            reader=named(self.reader_role, f"{own}_reader"),
            publisher=named(self.publisher_role, f"{own}_publisher"),
            service_user=named(self.service_user, own),
            volume=named(None, f"{own}_volume"),
            integration=named(None, f"{own}_catalog"),
            open_catalog=fields.resolved(OpenCatalog, self.open_catalog) if self.open_catalog else None,
            refresh_s=int(self.refresh_interval),
        )


class PublishSection(Section):
    """Who else gets the tables. Absent: they are in Glue alone."""

    snowflake: SnowflakeSection | None = None
    """See `publish.snowflake`"""
    iceberg_rest: IcebergRestSection | None = None
    """See `publish.iceberg_rest`"""

    def problems(self) -> Iterator[Problem]:
        if self.snowflake is None and self.iceberg_rest is None:
            fix = "name `snowflake:` or `iceberg_rest:`, or remove `publish`"
            yield Problem((), "names nobody to publish to", fix)


class CsvSection(Section):
    """How the file is written."""

    delimiter: fields.Delimiter = ","
    """`,`, `;`, a vertical bar or a tab (`"\\t"`); spreadsheets of most of Europe expect `;`. Default: `,`"""
    bom: bool = False
    """Begin with a byte order mark, by which Excel knows UTF-8. Default: `false`"""
    gzip: bool = False
    """Compress the file. Default: `false`"""
    system_columns: bool = False
    """Add the columns of `_kafka`. Default: `false`"""
    row_limit: int = Field(default=1_000_000, ge=1, le=1_048_575)
    """Rows of one file, without its header; more make numbered parts. A spreadsheet ends at 1,048,575. Default: `1000000`"""
    formulas: Formulas = "guard"
    """`guard`: an apostrophe before what a spreadsheet would run as a formula; `keep`: every text as it is, for readers
    that run none. Default: `guard`"""


class LinkSection(Section):
    """The link in the mail."""

    days: int = Field(default=7, ge=1, le=30)
    """Days for which it works, at most 30. Default: `7`"""
    max_downloads: int = Field(default=50, ge=1, le=10_000)
    """Downloads after which it no longer works. Default: `50`"""


class ExportSection(Section):
    """One table's time window as a CSV file, mailed as a link; its key is its name."""

    table: fields.Text
    """Table, by its key in `tables`"""
    columns: fields.Columns = Field(default_factory=list)
    """List of columns, in the order of the file. Default: all but `_kafka`"""
    filter: fields.Filter | None = None
    """Rows to take, such as `symbol == 'ZVZZT' and price > 10`"""
    group_by: fields.Columns = Field(default_factory=list)
    """List of columns of which every combination makes one row; needs `measures`"""
    measures: fields.Measures = Field(default_factory=dict)
    """Columns that are computed for each group, or for all rows: `{trades: count, volume: sum(quantity)}`; `count`,
    `count(column)`, `sum(...)`, `min(...)`, `max(...)`"""
    time_column: fields.Column | None = None
    """Column whose time decides which window a row is in. Default: the table's `event_time`, else `_kafka.timestamp`"""
    schedule: fields.Schedule
    """When the file is made: `cron(0 6 ? * MON *)` or `rate(1 day)`"""
    time_zone: fields.TimeZone = "UTC"
    """Time zone of schedule, window and file, such as `Europe/Vilnius`. Default: `UTC`"""
    window: Window = "previous_week"
    """`previous_day`, `previous_week` (from Monday) or `previous_month`. Default: `previous_week`"""
    recipients: fields.Emails = Field(min_length=1)
    """Addresses that the mail goes to"""
    channel: Channel = "sns"
    """`sns`: plain text, each recipient confirms once; `ses`: needs a verified `sender`. Default: `sns`"""
    sender: fields.Email | None = None
    """With `ses`: address that the mail comes from"""
    reply_to: fields.Email | None = None
    """Address of the one to ask"""
    csv: CsvSection = CsvSection()
    """See `exports.<name>.csv`"""
    wait: fields.Duration | None = None
    """How long after its schedule the export waits for the window to be complete. Default: `2h`"""
    recheck_windows: int = Field(default=2, ge=0, le=12)
    """Earlier windows that each run looks at again; rows that came late make a correction. Default: `2`"""
    keep: fields.Days | None = None
    """How long files are kept, in whole days. Default: `90d`"""
    link: LinkSection = LinkSection()
    """See `exports.<name>.link`"""

    def problems(self) -> Iterator[Problem]:
        if self.keep is not None and self.keep < self.link.days:
            reason = f"ends before the link does, which works for {self.link.days} days"
            yield Problem(("keep",), reason, f"use `keep: {self.link.days}d` or a shorter link")
        if self.channel == "ses" and self.sender is None:
            yield Problem(("sender",), "is missing: ses needs it", "add `sender: reports@example.com`")
        if self.channel == "sns" and self.sender is not None:
            yield Problem(("sender",), "has no use with sns", "remove it, or use `channel: ses`")
        if self.group_by and not self.measures:
            yield Problem(("measures",), "is missing: `group_by` needs it", "add `measures: {rows: count}`")
        if self.columns and (self.group_by or self.measures):
            reason = "has no use with `measures`: the file has the groups and the measures"
            yield Problem(("columns",), reason, "remove it")
        if self.csv.system_columns and self.measures:
            reason = "has no use with `measures`: a group comes from many records"
            yield Problem(("csv", "system_columns"), reason, "remove it")
        for place, name in enumerate(self.measures):
            if name.lower() in map(str.lower, list(self.measures)[:place]):
                reason = f'"{name}" differs only by case from another one'
                yield Problem(("measures", name), reason, "rename one of the two")
        groups = [column.lower() for column in self.group_by]
        for name in [each for each in self.measures if each.lower() in groups]:
            reason = f'"{name}" is a column of `group_by` already'
            yield Problem(("measures", name), reason, "rename the measure")
