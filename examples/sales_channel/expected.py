"""What the table `sales` must hold of these events, in plain Python."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

[KEY] = json.loads((Path(__file__).parent / "masking.json").read_text())["keys"]


def rows(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row of each item of each event's first delivery; of an event without items one row without an item."""
    seen: set[str] = set()
    for event in events:
        if event["event_id"] in seen:
            continue
        seen.add(event["event_id"])
        for item in event["items"] or [{"sku": None, "quantity": None, "price": None}]:
            yield _row(event, item)


def _row(event: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    customer, delivery, card = event["customer"], event["delivery"], event["payment"]["card"]
    rest = {name: value for name, value in event["attributes"].items() if name != "channel"}
    return {
        "event_id": event["event_id"],
        "order_id": event["order_id"],
        "created_at": event["created_at"],
        "customer_id": customer["id"],
        "customer_email": token(customer["email"]),
        "customer_phone": _last_four(customer["phone"]),
        "customer_birth_date": customer["birth_date"] and date(customer["birth_date"].year, 1, 1),
        "delivery_country": delivery and delivery["country"],
        "payment_method": event["payment"]["method"],
        "payment_card": _last_four(card),
        "items_sku": item["sku"],
        "items_quantity": item["quantity"],
        "items_price": item["price"],
        "attributes": rest,
        "attributes_channel": event["attributes"]["channel"],
        "amount": item["price"] and item["quantity"] * item["price"],
    }


def token(text: str) -> str:
    """The token of a text, as docs/masking.md has it."""
    digest = hmac.new(base64.b64decode(KEY["key"]), text.encode(), hashlib.sha256)
    return f"{KEY['id']}:{digest.hexdigest()}"


def _last_four(text: str | None) -> str | None:
    return text and "*" * (len(text) - 4) + text[-4:]
