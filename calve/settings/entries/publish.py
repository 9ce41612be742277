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
    LinkKind,
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
    """A deploy makes the catalog at a server of Polaris or Snowflake Open Catalog."""

    secret: fields.Secret
    scope: fields.Text = "PRINCIPAL_ROLE:ALL"
    management_uri: fields.Url | None = None
    role_arn: fields.RoleArn | None = None
    external_id: fields.Text | None = None


class IcebergRestSection(Section):
    """An Iceberg REST catalog that is kept equal to Glue; see docs/iceberg_rest.md."""

    uri: fields.Url
    warehouse: fields.Text | None = None
    namespace: fields.Namespace | None = None
    secret: fields.Secret | None = None
    scope: fields.Text | None = None
    token_url: fields.Url | None = None
    update: CatalogUpdate | None = None
    bootstrap: BootstrapSection | None = None

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
        if self.bootstrap and self.bootstrap.management_uri:
            return self.bootstrap.management_uri
        if self.uri.endswith(OF_POLARIS):
            return self.uri.removesuffix(OF_POLARIS) + MANAGEMENT
        return None

    def resolved(self) -> IcebergRest:
        made = self.bootstrap and fields.resolved(
            CatalogBootstrap, self.bootstrap, management_uri=self.management_uri
        )
        update = self.update or ("notifications" if made else "register")
        return fields.resolved(IcebergRest, self, update=update, bootstrap=made)


class WarehouseSection(Section):
    """A warehouse for those who query. Absent: none is made."""

    name: fields.SnowflakeName | None = None
    size: Literal["xsmall", "small", "medium", "large", "xlarge"] = "xsmall"
    auto_suspend: fields.Duration = Field(default=60.0, ge=30, le=86_400)


class OpenCatalogSection(Section):
    """The account of Snowflake Open Catalog that holds the tables; `publish.iceberg_rest` brings them there."""

    uri: fields.Url
    warehouse: fields.Text
    secret: fields.Secret


class SnowflakeSection(Section):
    """An account of Snowflake that reads the tables; see docs/snowflake.md. Names are folded to capitals, as Snowflake does."""

    account: fields.SnowflakeAccount
    url: fields.Url | None = None
    user: fields.SnowflakeName
    secret: fields.Secret
    admin_role: fields.SnowflakeName = "ACCOUNTADMIN"
    database: fields.SnowflakeName | None = None
    schema_: fields.SnowflakeName | None = Field(default=None, alias="schema")
    warehouse: WarehouseSection | None = None
    reader_role: fields.SnowflakeName | None = None
    publisher_role: fields.SnowflakeName | None = None
    service_user: fields.SnowflakeName | None = None
    catalog: SnowflakeCatalog = "glue_rest"
    open_catalog: OpenCatalogSection | None = None
    tables: SnowflakeTables = "iceberg"
    refresh_interval: fields.Duration = Field(default=float(SNOWFLAKE_REFRESH_S), ge=30, le=86_400)
    iam_user_arn: fields.IamUserArn | None = None
    rotate_after_days: int = Field(default=SNOWFLAKE_ROTATION_DAYS, ge=1, le=365)

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
            refresh_s=int(self.refresh_interval),
        )


class DeltaSection(Section):
    """A Delta log beside each table, over the same files; see docs/iceberg_rest.md#delta."""


class OpenLineageSection(Section):
    """A receiver of OpenLineage events; see docs/announcements.md#lineage."""

    url: fields.Url
    endpoint: fields.Text = "api/v1/lineage"
    secret: fields.Secret | None = None
    namespace: fields.Text | None = None


class PublishSection(Section):
    """Who else gets the tables. Absent: they are in Glue alone."""

    snowflake: SnowflakeSection | None = None
    iceberg_rest: IcebergRestSection | None = None
    delta: DeltaSection | None = None
    openlineage: OpenLineageSection | None = None

    def problems(self) -> Iterator[Problem]:
        if not any(getattr(self, name) for name in type(self).model_fields):
            fix = "name `snowflake:`, `iceberg_rest:`, `delta: {}` or `openlineage:`, or remove `publish`"
            yield Problem((), "names nothing to publish to", fix)


class CsvSection(Section):
    """How the file is written."""

    delimiter: fields.Delimiter = ","
    bom: bool = False
    gzip: bool = False
    system_columns: bool = False
    row_limit: int = Field(default=1_000_000, ge=1, le=1_048_575)
    formulas: Formulas = "guard"


class LinkSection(Section):
    """The link in the mail."""

    kind: LinkKind = "public"
    days: int = Field(default=7, ge=1, le=30)
    max_downloads: int = Field(default=50, ge=1, le=10_000)

    def problems(self) -> Iterator[Problem]:
        for key in sorted(self.model_fields_set - {"kind"}) if self.kind == "console" else ():
            yield Problem((key,), "has no use with `kind: console`: S3 answers this link", "remove it")


class ExportSection(Section):
    """One table's time window as a CSV file, mailed as a link; its key is its name."""

    table: fields.Text
    columns: fields.Columns = Field(default_factory=list)
    filter: fields.Filter | None = None
    group_by: fields.Columns = Field(default_factory=list)
    measures: fields.Measures = Field(default_factory=dict)
    time_column: fields.Column | None = None
    schedule: fields.Schedule
    time_zone: fields.TimeZone = "UTC"
    window: Window = "previous_week"
    recipients: fields.Emails = Field(min_length=1)
    channel: Channel | None = None
    sender: fields.Email | None = None
    reply_to: fields.Email | None = None
    csv: CsvSection = CsvSection()
    wait: fields.Duration | None = None
    recheck_windows: int = Field(default=2, ge=0, le=12)
    keep: fields.Days | None = None
    link: LinkSection = LinkSection()

    def problems(self) -> Iterator[Problem]:
        if self.link.kind == "public" and self.keep is not None and self.keep < self.link.days:
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
