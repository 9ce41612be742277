"""The client: for each table that is named on a line of its input, it answers a line with the table's rows."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from tests.integration.support.readers import rows_of

if __name__ == "__main__":
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    for line in sys.stdin:
        print(json.dumps(rows_of(spark.table(line.strip()).toArrow())), flush=True)  # noqa: T201 its answer
