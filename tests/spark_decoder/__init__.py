"""Decode by Spark's own functions, as the row engine did once: the machines are compared with it."""

from calve.decoding.avro_operations import ITEMS_LIMIT, STRING_LIMIT

_LIMITS = {"string": STRING_LIMIT, "bytes": STRING_LIMIT, "collectionItems": ITEMS_LIMIT}
LIMITS = {
    "spark.driver.extraJavaOptions": " ".join(
        ["-Xss8m", *(f"-Dorg.apache.avro.limits.{name}.maxLength={limit}" for name, limit in _LIMITS.items())]
    )
}
"""Settings of a session that decodes so.

Spark reads a variant by recursion. A thousand levels take about the usual megabyte of stack, more where Java has not compiled the
code yet; then Spark ends the whole process.
"""
