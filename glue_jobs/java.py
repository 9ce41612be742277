"""Java collections as Python sees them over py4j, where every call is a question to the JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def elements(iterable: Any) -> Iterator[Any]:
    """The elements of a Java Iterable.

    py4j iterates collections alone, and notices their end by an exception, whose conversion asks the JVM some seventy times.
    """
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def strings(jvm: Any, mapping: Any) -> dict[str, str]:
    """A Java map of strings. By JSON: py4j would ask the JVM several times for each entry."""
    return dict(json.loads(jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(mapping)))
