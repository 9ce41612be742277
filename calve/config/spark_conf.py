"""The Spark settings of an ingest job, the same on Glue (`--conf`) and on a laptop."""

from __future__ import annotations

import re

from calve.config.job import Job

CATALOG = "lake"
NAMES_KEY = f"spark.sql.catalog.{CATALOG}.calve.names-key"
"""Whether only what is sent with the name of the lake's key is encrypted by it."""
COPIES = "copies"
"""The catalog in memory in which `glue_jobs.iceberg.position_deletes` keeps copies of tables for the length of a round."""
OWN_SETTINGS = re.compile(
    r"spark\.sql\.(extensions|catalog\..*|ansi\.enabled|adaptive\.optimizer\.excludedRules|execution\.arrow\.maxBytesPerBatch|mapKeyDedupPolicy|session\.timeZone)"
    r"|spark\.dynamicAllocation\.minExecutors|spark\.(driver|executor)\.extraJavaOptions|spark\.(redaction\.regex|scheduler\.mode|speculation|ui\..*|broadcast\.UDFCompressionThreshold)"
)
"""Names that calve sets; a configuration may not."""
LEAST_EXECUTORS = "spark.dynamicAllocation.minExecutors"
STRING_LIMIT = 16_777_216
ITEMS_LIMIT = 1_000_000
AVRO_LIMITS = {
    "org.apache.avro.limits.string.maxLength": STRING_LIMIT,
    "org.apache.avro.limits.bytes.maxLength": STRING_LIMIT,
    "org.apache.avro.limits.collectionItems.maxLength": ITEMS_LIMIT,
}
"""A 9-byte record may claim a string of 2 GB; without these limits Avro allocates it and the JVM dies."""


def java_options() -> str:
    """JVM options that driver and executors must have; the job refuses to start where they are not active."""
    return " ".join(f"-D{name}={value}" for name, value in AVRO_LIMITS.items())


def spark_conf(job: Job) -> dict[str, str]:
    """Settings that must be in place before the session exists, by name."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.warehouse": job.lake.warehouse,
        f"{catalog}.client.region": job.lake.region,
        f"{catalog}.glue.skip-archive": "true",
        # Cluster ids hold "-", which Glue allows and Iceberg refuses; calve.names has checked every name by its own rules.
        f"{catalog}.glue.skip-name-validation": "true",
        f"{catalog}.cache-enabled": "false",
        # The catalog through which Iceberg's compaction, and `glue_jobs.iceberg.staging`, write files without a commit.
        "spark.sql.catalog.default_rewrite_catalog": "org.apache.iceberg.spark.SparkRewriteTableCatalog",
        f"spark.sql.catalog.{COPIES}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{COPIES}.catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
        f"spark.sql.catalog.{COPIES}.cache-enabled": "false",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.executor.extraJavaOptions": java_options(),
        # What Python tasks are handed, keys among it, stays in memory: more than this Spark writes into a file.
        "spark.broadcast.UDFCompressionThreshold": "256m",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|keystore|jaas",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.ansi.enabled": "false",
        # It would drop a part of a plan that turns out to have no rows, and the observations in it.
        "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
        # What is handed to Python at once, where Protobuf is decoded; records may be large.
        "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
        # A key that a map written as a list holds twice: the later one counts, as in Avro's own maps.
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
    }
    if job.lake.kms_key:
        conf |= {f"{catalog}.s3.sse.type": "kms", f"{catalog}.s3.sse.key": job.lake.kms_key}
    if job.lake.names_key:
        conf[NAMES_KEY] = "true"
    if job.lake.endpoint:
        conf |= {
            f"{catalog}.glue.endpoint": job.lake.endpoint,
            f"{catalog}.s3.endpoint": job.lake.endpoint,
            f"{catalog}.s3.path-style-access": "true",
        }
    return conf
