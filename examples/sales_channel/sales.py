"""The events of the example: the same ones every time, some of them delivered twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

MONDAY = datetime(2026, 11, 9, 8, tzinfo=UTC)
SKUS = {"tea": "4.20", "mug": "12.50", "kettle": "39.00", "spoon": "2.10"}
FIRST, LAST = ("Ada", "Bo", "Chloé", "Dmitri", "Eglė"), ("Novak", "Okafor", "Petit", "Rossi", "Šimkus")
STREETS = ("Pilies g.", "Rue de la Paix", "Via Roma", "Marienplatz")


def events(
    count: int, *, start: datetime = MONDAY, first: int = 0, again: float = 0.05
) -> Iterator[dict[str, Any]]:
    """`count` events in the order of their delivery, of which a part is one that was delivered `again`.

    They have numbers from `first` on; one is made every seven minutes, from `start` on.
    """
    dice, sent = Random(1 + first), []  # noqa: S311 an example
    for number in range(first, first + count):
        if sent and dice.random() < again:
            yield dice.choice(sent[-50:])
            continue
        sent.append(_sale(dice, number, start + timedelta(minutes=7 * (number - first))))
        yield sent[-1]


def _sale(dice: Random, number: int, at: datetime) -> dict[str, Any]:
    customer = dice.randrange(40)
    card = dice.random() < 0.7
    return {
        "event_id": f"e-{number:06}",
        "order_id": 100_000 + number,
        "created_at": at,
        "customer": _customer(customer),
        "delivery": None if dice.random() < 0.2 else _delivery(dice),
        "payment": {"method": "CARD", "card": f"4000{customer:012}"}
        if card
        else {"method": "TRANSFER", "card": None},
        "items": [_item(dice) for _ in range(dice.randrange(4))],
        "attributes": {"channel": dice.choice(("web", "app", "shop"))}
        | ({"gift": "yes"} if number % 9 == 0 else {}),
    }


def _customer(number: int) -> dict[str, Any]:
    first, last = FIRST[number % 5], LAST[number // 5 % 5]
    return {
        "id": number,
        "name": f"{first} {last}",
        "email": f"{first}.{last}.{number}@example.com".lower(),
        "phone": None if number % 4 == 0 else f"+370600{number:05}",
        "birth_date": None if number % 7 == 0 else date(1950 + number, 1 + number % 12, 1 + number % 28),
    }


def _delivery(dice: Random) -> dict[str, Any]:
    return {
        "address": f"{dice.choice(STREETS)} {dice.randrange(1, 200)}",
        "country": dice.choice(("LT", "FR", "IT", "DE")),
    }


def _item(dice: Random) -> dict[str, Any]:
    sku = dice.choice(sorted(SKUS))
    return {"sku": sku, "quantity": dice.randrange(1, 5), "price": Decimal(SKUS[sku])}
