"""Deployments that between them use everything that the stacks can make."""

from dataclasses import replace

from calve.config.deployment import (
    UNKNOWN_SERVERS,
    Alerts,
    Deployment,
    JobDeployment,
    KeyRotation,
    LakeDeployment,
    Msk,
    Network,
    Workers,
)
from calve.config.job import Entry, GlueRegistry, Job, Kafka, Lake, Registry, RestCatalog, S3Tables, Table
from calve.config.publishing import (
    Announce,
    CatalogBootstrap,
    Delta,
    Export,
    IcebergRest,
    OpenLineage,
    Publish,
    Snowflake,
    Warehouse,
)
from calve.config.steps import Expect
from calve.names import TableName

UNKNOWN = "s3://made-by-the-stack"


def job(
    name: str, *topics: str, servers: str = "broker:9093", auth: str = "sasl_scram", **lake: object
) -> Job:
    return Job(
        name="trading",
        job=name,
        kafka=Kafka(servers, auth=auth, tls=True, secret="aws:calve/kafka"),  # type: ignore[arg-type]
        registry=Registry("https://registry.example.com", secret="aws:calve/registry"),
        lake=Lake("trading", UNKNOWN, **lake),  # type: ignore[arg-type]
        tables=tuple(Table(topic, topic) for topic in topics),
    )


WEEKLY = Export(
    name="weekly_trades",
    database="trading",
    table="stock_trades",
    time_column="_kafka.timestamp",
    schedule="cron(0 6 ? * MON *)",
    time_zone="Europe/Vilnius",
    recipients=("analyst@example.com", "boss@example.com"),
)

CATALOG = IcebergRest(
    "https://catalog.example.com/api/catalog",
    warehouse="trading",
    secret="aws:calve/catalog",
    scope="PRINCIPAL_ROLE:ALL",
)

SNOWFLAKE = Snowflake(
    account="myorg-myaccount",
    url="https://myorg-myaccount.snowflakecomputing.com",
    user="DEPLOYER",
    secret="aws:calve/snowflake",
    admin_role="ACCOUNTADMIN",
    database="TRADING",
    schema="TRADING",
    warehouse=Warehouse("CALVE_TRADING"),
    reader="CALVE_TRADING_READER",
    publisher="CALVE_TRADING_PUBLISHER",
    service_user="CALVE_TRADING",
    volume="CALVE_TRADING_VOLUME",
    integration="CALVE_TRADING_CATALOG",
)

MADE = Deployment(
    name="trading",
    jobs=(
        JobDeployment(job("main", "stock_trades", "users"), workers=Workers(2, 10)),
        JobDeployment(job("nightly", "sales"), schedule="rate(6 hours)", worker="G.025X"),
    ),
    lake=LakeDeployment("trading"),
    exports=(WEEKLY,),
    alerts=Alerts(emails=("ops@example.com",), lag_records=1_000),
    rotations=(
        KeyRotation("kafka", "aws:calve/kafka", admin="aws:calve/kafka-admin"),
        KeyRotation("emit", "aws:calve/kafka-emit", after_days=7, admin="aws:calve/kafka-admin"),
        KeyRotation("registry", "aws:calve/registry", admin="aws:calve/cloud", keys_to_retain=3),
    ),
    publish=Publish(
        tables=(TableName("trading", "stock_trades"), TableName("trading", "users")),
        iceberg_rest=CATALOG,
        snowflake=SNOWFLAKE,
        delta=Delta(),
        openlineage=OpenLineage("https://lineage.example.com", "trading", secret="aws:calve/lineage"),
    ),
)

MSK = Deployment(
    name="streams",
    jobs=(
        JobDeployment(job("main", "orders", servers=UNKNOWN_SERVERS, auth="msk_iam", namespace="cluster_id")),
    ),
    lake=LakeDeployment("orders", namespace="cluster_id"),
    msk=Msk(),
    exports=(replace(WEEKLY, name="weekly_orders", database="", table="orders", link_kind="console"),),
    publish=Publish(
        tables=(TableName("orders", "orders"),),
        patterns=("shop_[a-z0-9_]*",),
        iceberg_rest=IcebergRest("https://catalog.example.com"),
    ),
)

IMPORTED = Deployment(
    name="guest",
    jobs=(
        JobDeployment(
            replace(job("main", "orders", auth="msk_iam"), registry=GlueRegistry("company", "eu-central-1"))
        ),
    ),
    lake=LakeDeployment(
        "shared",
        import_database=True,
        bucket="company-lake",
        prefix="teams/guest",
        kms_key="arn:aws:kms:eu-central-1:111122223333:key/11111111-2222-3333-4444-555555555555",
    ),
    msk=Msk("arn:aws:kafka:eu-central-1:111122223333:cluster/company/11111111-2222-3333-4444-555555555555-1"),
    network=Network(
        vpc_id="vpc-11111111",
        availability_zones=("eu-central-1a", "eu-central-1b"),
        subnets=("subnet-11111111", "subnet-22222222"),
        security_groups=("sg-11111111",),
    ),
    publish=Publish(
        tables=(TableName("shared", "orders"),),
        iceberg_rest=IcebergRest(
            "https://polaris.example.com/api/catalog",
            warehouse="guest",
            update="notifications",
            bootstrap=CatalogBootstrap("aws:polaris/admin", "https://polaris.example.com/api/management/v1"),
        ),
    ),
    exports=(
        replace(WEEKLY, database="shared", table="orders", channel="ses", sender="reports@example.com"),
    ),
    rotations=(
        KeyRotation(
            "kafka", "aws:arn:aws:secretsmanager:eu-central-1:111122223333:secret:AmazonMSK_guest-AbCdEf"
        ),
    ),
)

REMOVABLE = Deployment(
    name="removable",
    jobs=(JobDeployment(job("main", "orders", servers=UNKNOWN_SERVERS, auth="msk_iam")),),
    lake=LakeDeployment("orders"),
    msk=Msk(),
)

_SHOP = job("main", "orders", servers=UNKNOWN_SERVERS, auth="msk_iam")
SHOP = Deployment(
    name="shop",
    jobs=(
        JobDeployment(
            replace(
                _SHOP,
                tables=(
                    Table(
                        "orders",
                        "orders",
                        announce=Announce("status", ("LOST", "STOLEN")),
                        steps=(Expect("quantity > 0", at_least=0.999),),
                    ),
                ),
                patterns=(Table("shop_{1}", r"shop\.(.*)"), Table("{topic}", "(eu|us)-.*")),
                entries=(
                    Entry("orders", "orders"),
                    Entry("shop_{1}", r"shop\.(.*)", pattern=True),
                    Entry("{topic}", "(eu|us)-.*", pattern=True),
                ),
            )
        ),
    ),
    lake=LakeDeployment("orders"),
    msk=Msk(),
    alerts=Alerts(freshness_s=300.0),
)

TABLE_BUCKET = "arn:aws:s3tables:eu-central-1:111122223333:bucket/trading"
IN_REST = RestCatalog("https://polaris.example.com/api/catalog", "trading", "aws:calve/polaris")
IN_S3_TABLES = S3Tables(TABLE_BUCKET, "https://s3tables.eu-central-1.amazonaws.com/iceberg", "eu-central-1")
REST_HOME, S3_TABLES_HOME = (
    Deployment(
        name=name,
        jobs=(JobDeployment(job("main", "orders", catalog=catalog)),),
        lake=LakeDeployment("trading", catalog=catalog),
        exports=(replace(WEEKLY, table="orders"),),
        network=network,
    )
    for name, catalog, network in (("rest-home", IN_REST, None), ("s3tables-home", IN_S3_TABLES, Network()))
)
