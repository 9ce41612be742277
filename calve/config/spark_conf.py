"""The Spark settings of an ingest job, the same on Glue (`--conf`) and on a laptop."""

from __future__ import annotations

import re

from calve.config.job import Job, Lake, RestCatalog, S3Tables

CATALOG = "lake"
_OWN = f"spark.sql.catalog.{CATALOG}.calve"
NAMES_KEY = f"{_OWN}.names-key"
"""Whether the lake's key encrypts only objects that are sent with its name."""
FILES = f"{_OWN}.files"
"""The S3 URI of the lake's folder. `warehouse` is the catalog's own property: a REST catalog has another word there."""
SERVICE = f"{_OWN}.service"
"""A `calve.config.job.Service`."""
OWN_SETTINGS = re.compile(
    r"spark\.sql\.(extensions|catalog\..*|ansi\.enabled|adaptive\.optimizer\.excludedRules|execution\.arrow\.maxBytesPerBatch|mapKeyDedupPolicy|session\.timeZone)"
    r"|spark\.dynamicAllocation\.minExecutors|spark\.(driver|executor)\.extraJavaOptions|spark\.(redaction\.regex|scheduler\.mode|speculation|ui\..*|broadcast\.UDFCompressionThreshold)"
)
"""Names that calve sets; calve.yaml may not."""
LEAST_EXECUTORS = "spark.dynamicAllocation.minExecutors"


def spark_conf(job: Job) -> dict[str, str]:
    """Settings that must be in place before the session exists, by name."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{catalog}.{name}": value for name, value in _catalog(job.lake).items()},
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.client.region": job.lake.region,
        f"{catalog}.cache-enabled": "false",
        FILES: job.lake.warehouse,
        SERVICE: job.lake.service,
        # Iceberg's compaction and `glue_jobs.iceberg.staging` write files through this catalog without a commit.
        "spark.sql.catalog.default_rewrite_catalog": "org.apache.iceberg.spark.SparkRewriteTableCatalog",
        # Data for Python tasks, with keys in it, stays in memory: Spark writes more than this into a file.
        "spark.broadcast.UDFCompressionThreshold": "256m",
        "spark.redaction.regex": "(?i)secret|password|token|credential|access[.]?key|keystore|jaas",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.ansi.enabled": "false",
        # It would remove an empty part of a plan, with its observations.
        "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
        # Batch size for Python when it decodes; records may be large.
        "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
        # If a step makes a map with a key twice, the last one wins.
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
    }
    if job.lake.kms_key and job.lake.service != "s3tables":  # a table bucket encrypts by itself
        conf |= {f"{catalog}.s3.sse.type": "kms", f"{catalog}.s3.sse.key": job.lake.kms_key}
    if job.lake.names_key:
        conf[NAMES_KEY] = "true"
    if job.lake.endpoint:
        conf |= {
            f"{catalog}.s3.endpoint": job.lake.endpoint,
            f"{catalog}.s3.path-style-access": "true",
        }
    return conf


def _catalog(lake: Lake) -> dict[str, str]:
    """The properties that depend on what holds the tables, without a credential: Glue shows a job's settings to people."""
    match lake.catalog:
        case None:
            found = {
                "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
                "warehouse": lake.warehouse,
                "glue.skip-archive": "true",
                # Cluster ids contain "-", which Glue allows and Iceberg refuses; calve.names has validated every name.
                "glue.skip-name-validation": "true",
            }
            return found | ({"glue.endpoint": lake.endpoint} if lake.endpoint else {})
        case RestCatalog():
            return _REST | lake.catalog.properties
        case S3Tables():
            # The service deletes files itself, and refuses requests to delete.
            return _REST | lake.catalog.properties | {"s3.delete-enabled": "false"}


_REST = {"type": "rest", "rest-metrics-reporting-enabled": "false"}
