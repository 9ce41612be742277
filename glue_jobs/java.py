"""Java as Python sees it over py4j, where every call, and every part of a name, is a question to the JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaPackage


class Packages:
    """The JVM's packages and classes, or those below one of its packages; each part of a name is asked for once."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._found, name)
        known = Packages(value) if isinstance(value, JavaPackage) else value
        self.__dict__[name] = known
        return known


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
