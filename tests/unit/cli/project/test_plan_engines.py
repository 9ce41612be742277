"""What `calve plan` says of the engine of each table."""

from __future__ import annotations

import json
from dataclasses import replace

from calve.config.engine_choice import Chosen
from calve.config.job import Job, Kafka, Lake, Source, Table
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import Deduplicate, Upsert
from cli.project.plan.change import Change
from cli.project.plan.changes import Bills
from cli.project.plan.command import tree
from cli.project.plan.survey import engines, read_records, with_engines

FIELDS = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
AVRO = json.dumps({"type": "record", "name": "Sale", "fields": FIELDS})
BY_ID = Aggregate(("id",), (Measure("sales", "count(*)"),))
TABLE = Table("sales", "sales", value=Source(format="avro", schema=AVRO))


def said(*by_rows: str, **settings: object) -> str:
    table = replace(TABLE, **settings)  # type: ignore[arg-type]
    job = Job("t", "main", Kafka("b:1"), None, Lake("t", "s3://lake"), (table,))
    return str(engines(read_records([job], {}), {"sales": by_rows})["sales"])


def test_a_table_is_columnar_or_it_is_said_why_not() -> None:
    assert said() == said(engine="columnar") == "columnar"
    assert said(engine="rows") == "rows: calve.yaml says so"
    assert said(deduplicate=Deduplicate(("id",))) == "columnar"
    assert said(aggregate=BY_ID) == "columnar"
    assert said(upsert=Upsert(("id",), order_by="name"), engine="columnar") == "columnar"
    assert said(value=Source(format="string", column="line")) == "columnar"
    assert said("steps[0].filter: rand() needs the row engine").startswith("rows: steps[0].filter: rand()")
    refused = said("steps[0].filter: rand() needs the row engine", engine="columnar")
    assert refused.startswith("table sales cannot be made by the columnar engine: steps[0].filter: rand()")


def test_it_stands_below_tables_that_are_shown() -> None:
    found = [Change("tables", "sales", "+"), Change("tables", "gone", "-"), Change("jobs", "sales", "+")]
    told = with_engines(found, {"sales": Chosen("columnar"), "gone": Chosen("rows")})
    assert [each.engine for each in told] == ["columnar", None, None]
    lines = list(tree("t", "account 1", told[:1], Bills(0.0, 0.0, ()), 1.0).lines())
    assert lines[1].endswith("tables  + sales  engine columnar")
