"""The columnar engine: record batches to Arrow to Parquet in Spark's Python tasks, without JVM rows (ADR 35)."""

from glue_jobs.process.workers import use

use()
