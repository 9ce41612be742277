"""Changes of the shop's tables, as an application makes them: the same ones for the same seed."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

STATES = ("new", "paid", "sent", "cancelled")
CUSTOMERS, ORDERS, CARTS = 40, 120, 30


def change(connection: Any, dice: random.Random, changes: int) -> None:
    """Transactions of one to five statements. Some of them are rolled back."""
    cursor, connection.autocommit = connection.cursor(), False
    left = changes
    while left > 0:
        for _ in range(min(left, dice.randint(1, 5))):
            dice.choice((_customer, _customer, _order, _order, _order, _cart))(cursor, dice)
            left -= 1
        (connection.rollback if dice.random() < 0.15 else connection.commit)()
    connection.autocommit = True


def _customer(cursor: Any, dice: random.Random) -> None:
    key, deed = dice.randrange(CUSTOMERS), dice.random()
    if deed < 0.4:
        notes = "".join(dice.choices("abcdefghij ", k=dice.choice((20, 9_000))))
        row = (
            *(key, f"{key}.{dice.randrange(99)}@example.com", f"+49 30 {dice.randrange(10**6):06}"),
            *(
                f"{dice.randint(1930, 2010)}-0{dice.randint(1, 9)}-11",
                [f"t{n}" for n in range(dice.randrange(3))],
            ),
            *(json.dumps({"clicks": dice.randrange(9)}), notes),
        )
        cursor.execute(
            "INSERT INTO customers (id, email, phone, born, tags, profile, notes)"
            " VALUES (%s, %s, %s, %s::date, %s, %s::jsonb, %s) ON CONFLICT (id) DO UPDATE SET email = excluded.email",
            row,
        )
    elif deed < 0.75:
        cursor.execute("UPDATE customers SET phone = %s WHERE id = %s", (f"+1 {dice.randrange(10**7)}", key))
    else:
        cursor.execute("DELETE FROM customers WHERE id = %s", (key,))


def _order(cursor: Any, dice: random.Random) -> None:
    key = (dice.randrange(2), dice.randrange(ORDERS))
    if dice.random() < 0.9:
        row = (
            *key,
            dice.randrange(CUSTOMERS),
            dice.choice(STATES),
            dice.randrange(10**6) / 100,
            dice.choice((True, None)),
        )
        cursor.execute(
            "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s, now())"
            " ON CONFLICT (shop, number) DO UPDATE SET status = excluded.status, paid = excluded.paid",
            row,
        )
    else:
        cursor.execute("DELETE FROM orders WHERE shop = %s AND number = %s", key)


def _cart(cursor: Any, dice: random.Random) -> None:
    key, other, deed = *(str(uuid.UUID(int=dice.randrange(CARTS))) for _ in range(2)), dice.random()
    if deed < 0.6:
        cursor.execute(
            "INSERT INTO carts VALUES (%s, %s, 1) ON CONFLICT (id) DO UPDATE SET items = carts.items + 1",
            (key, dice.randrange(CUSTOMERS)),
        )
    elif deed < 0.8:
        cursor.execute("DELETE FROM carts WHERE id = %s", (key,))
    else:
        moved = "UPDATE carts SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM carts WHERE id = %s)"
        cursor.execute(moved, (other, key, other))
