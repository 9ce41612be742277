"""What a person asks of a table's job: it waits in a property of the table until the job answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

NOT_UNDERSTOOD = "the request is not one that this release understands"

Request = TypeVar("Request")


def pending(properties: Mapping[str, str], name: str, read: Callable[[Any], Request]) -> Request | None:
    """The request that waits in the property `name`, as `read` makes it of its JSON.

    Raises:
        ValueError: what is there is no request; the message says nothing of it.
    """
    text = properties.get(name)
    if text is None:
        return None
    try:
        return read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise ValueError(NOT_UNDERSTOOD)  # outside the handler: an error of JSON carries what it could not read
