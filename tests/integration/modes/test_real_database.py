"""PostgreSQL and Debezium's connector, through calve: at the end the tables of the lake are those of the database."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pytest

from calve.config.job import Job
from calve.config.spark_conf import CATALOG
from calve.errors import Retryable
from calve.names import TableName
from calve.schema.change_events import UNAVAILABLE
from glue_jobs.ingest import openers_of
from tests.integration.commands.test_examples import EXAMPLES, as_written, assert_all_proved, plain, script
from tests.integration.support.engine import Engine, until
from tests.standins.database.server import Database, database

EXAMPLE = EXAMPLES / "database"
DEADLINE_S = 60
COLUMNS = {
    "customers": ("id", "email", "phone", "born", "tags", "notes"),
    "open_orders": ("shop", "number", "customer", "status", "total", "paid", "placed"),
    "carts": ("id", "customer", "items"),
}
CUSTOMERS = f"SELECT {', '.join(COLUMNS['customers'])} FROM customers"
OPEN_ORDERS = f"SELECT {', '.join(COLUMNS['open_orders'])} FROM orders WHERE status IN ('new', 'paid')"
CARTS = "SELECT id, customer, items FROM carts"


@dataclass
class Shop:
    """The example's job over a database. Its topics begin with a prefix of their own."""

    engine: Engine
    database: Database
    job: Job

    @classmethod
    def of(cls, engine: Engine, made: Database, prefix: str) -> Shop:
        job = as_written(engine, "database")
        tables = tuple(replace(each, topic=each.topic.replace("shop.", f"{prefix}.")) for each in job.tables)
        return cls(engine, made, replace(job, tables=tables, lake=replace(job.lake, database=prefix)))

    def drain(self) -> None:
        for target in openers_of(self.job, self.engine.lake, self.engine.cluster):
            self.engine.drain(target)

    def of_lake(self, name: str, *columns: str) -> list[Any]:
        table = self.engine.spark.table(TableName(self.job.lake.database, name).quoted(CATALOG))
        return sorted((tuple(plain(row)) for row in table.select(*columns).collect()), key=repr)

    def of_database(self, query: str, change: Callable[..., Any] = lambda *row: row) -> list[Any]:
        with self.database.connection() as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            return sorted((tuple(change(*row)) for row in cursor.fetchall()), key=repr)

    def execute(self, *statements: str) -> None:
        with self.database.connection() as connection:
            for each in statements:
                connection.cursor().execute(each)

    def change(self, dice: random.Random, changes: int) -> None:
        with self.database.connection() as connection:
            script("database", "generate").change(connection, dice, changes)

    def has_customer(self, key: int) -> bool:
        self.drain()
        return (key,) in self.of_lake("customers", "id")

    def differing(self) -> dict[str, tuple[Any, Any]]:
        """The tables that differ, each as it is in the lake and in the database."""
        try:
            self.drain()
        except Retryable:  # the connector has not made a topic, or registered its schema
            return {"": ((), ())}
        pairs = {
            "customers": self.of_database(CUSTOMERS, masked),
            "open_orders": self.of_database(OPEN_ORDERS),
            "carts": self.of_database(CARTS, lambda key, *row: (str(key), *row)),
        }
        found = {name: (self.of_lake(name, *COLUMNS[name]), rows) for name, rows in pairs.items()}
        return {name: both for name, both in found.items() if both[0] != both[1]}

    def settle(self) -> None:
        """Ingest until the tables are those of the database: the connector takes a moment."""
        end = time.monotonic() + DEADLINE_S
        while differing := self.differing():
            assert time.monotonic() < end, {
                name: (
                    set(map(repr, ours)) - set(map(repr, theirs)),
                    set(map(repr, theirs)) - set(map(repr, ours)),
                )
                for name, (ours, theirs) in differing.items()
            }
            time.sleep(0.5)


def token(value: str | None) -> str | None:
    [key] = json.loads((EXAMPLE / "masking.json").read_text())["keys"]
    digest = hmac.new(base64.b64decode(key["key"]), (value or "").encode(), hashlib.sha256)
    return None if value is None else f"{key['id']}:{digest.hexdigest()}"


def masked(
    key: int, email: str, phone: str | None, born: date | None, tags: Any, notes: str | None
) -> tuple[Any, ...]:
    hidden = phone and "*" * (len(phone) - 4) + phone[-4:]
    return key, token(email), hidden, born and born.replace(month=1, day=1), tags, token(notes)


@pytest.mark.long
def test_the_lake_has_the_database(engine: Engine) -> None:
    """Snapshot, changes, changed keys, values left out of the log, rollbacks, new columns, truncation, crashes of both."""
    prefix, dice = f"shop_{uuid.uuid4().hex[:8]}", random.Random(32)
    config = json.loads((EXAMPLE / "connector.json").read_text()) | {"topic.prefix": prefix}
    with database(engine.stack, config) as made:
        shop = Shop.of(engine, made, prefix)
        shop.execute((EXAMPLE / "shop.sql").read_text())
        shop.change(dice, 150)
        made.start_connector()
        shop.settle()

        shop.change(dice, 200)
        made.kill_connector()
        shop.change(dice, 100)
        made.start_connector()
        shop.settle()

        shop.execute(
            "ALTER TABLE customers ADD COLUMN city text",
            "ALTER TABLE orders ADD COLUMN note text, ALTER COLUMN customer DROP NOT NULL",
        )
        shop.change(dice, 100)
        shop.execute(
            "UPDATE customers SET city = 'Berlin'", "UPDATE orders SET note = 'late' WHERE number < 60"
        )
        made.kill_connector()
        made.kill_postgres()
        made.start_postgres()
        made.start_connector()
        shop.settle()
        customers = engine.lake.load(TableName(prefix, "customers"))
        assert customers is not None
        assert "city" not in [each["name"] for each in customers.schema["fields"]]
        noted = "SELECT shop, number, note FROM orders WHERE status IN ('new', 'paid')"
        assert shop.of_lake("open_orders", "shop", "number", "note") == shop.of_database(noted)

        shop.execute("TRUNCATE carts")
        shop.change(dice, 60)
        shop.settle()
        assert len(shop.of_lake("carts", "id")) < 60
        assert shop.of_database("SELECT count(*) FROM customers WHERE length(notes) > 5000") > [(2,)]
        assert UNAVAILABLE not in {row[0] for row in shop.of_lake("customers", "notes")}
        assert_all_proved(shop.job)

        shop.execute(
            "UPDATE customers SET id = 1000 WHERE id = (SELECT max(id) FROM customers WHERE length(notes) > 5000)"
        )
        until(lambda: shop.has_customer(1000), seconds=DEADLINE_S)
        assert [row[1] for row in shop.of_lake("customers", "id", "notes") if row[0] == 1000] == [UNAVAILABLE]
