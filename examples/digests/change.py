"""Changes the amount of one payment in the table, with PyIceberg, as anybody with the right to write could."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.expressions import EqualTo

from calve.config.job import Job
from calve.names import TableName
from cli.config import load_jobs
from cli.lake import load, open_catalog

HERE = Path(__file__).parent
PAYMENT = "2-42"


def change(job: Job, database: str) -> str:
    """Add a cent to one payment; its name."""
    table = load(open_catalog(job.lake), TableName(database, job.tables[0].name))
    if table is None:
        raise SystemExit("there is no table yet")
    chosen = EqualTo("payment", PAYMENT)
    row = table.scan(chosen).to_arrow()
    at = row.schema.get_field_index("cents")
    cents = pa.array([each + 1 for each in row["cents"].to_pylist()], row.schema.field(at).type)
    table.overwrite(row.set_column(at, row.schema.field(at), cents), chosen)
    return PAYMENT


if __name__ == "__main__":
    [made] = load_jobs(HERE / "calve.yaml")
    print(f"added a cent to payment {change(made, made.lake.database)}")  # noqa: T201 a script
