"""Reads the table of this example as Delta: by deltalake, which knows nothing of Iceberg."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from cli.embedded import aws
from cli.embedded.layout import project_root
from cli.embedded.stack import Stack, current

QUERY = "SELECT count(*) AS accounts, sum(cents) AS cents FROM balances"


def totals(stack: Stack, database: str, table: str) -> dict[str, int]:
    """The number of accounts, and the sum of their balances."""
    found = aws.client("glue", stack.aws_endpoint).get_table(DatabaseName=database, Name=table)["Table"]
    options = {
        "AWS_ACCESS_KEY_ID": aws.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": aws.SECRET_KEY,
        "AWS_REGION": stack.region,
        "AWS_ENDPOINT_URL": stack.aws_endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    delta = DeltaTable(found["StorageDescriptor"]["Location"], storage_options=options)
    answer = QueryBuilder().register("balances", delta).execute(QUERY).read_all()
    [row] = pa.table(answer).to_pylist()
    return row


if __name__ == "__main__":
    here = current(project_root())
    if here is None:
        raise SystemExit("the embedded stack is not up: calve up")
    print(totals(here, "delta", "balances"))  # noqa: T201 a script
