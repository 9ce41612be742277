"""The columnar engine: record batches to Arrow to Parquet in Spark's Python tasks, with no JVM row in between (ADR 35)."""

from glue_jobs.process.packages import use

use()
