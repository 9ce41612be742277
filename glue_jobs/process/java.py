"""Java as Python sees it over py4j, where every call, and every part of a name, is a question to the JVM.

What is said of an exception of Java's, in a log or in a table's state, is nothing that may quote a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError

from calve.errors import CalveError


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


TELLING = ("org.apache.iceberg.", "org.apache.kafka.", "software.amazon.awssdk.", "java.io.", "java.net.")
"""Packages of exceptions that tell of systems. Messages of others, Spark's among them, may quote a value."""
SPARK = "org.apache.spark."
CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]*\]")
"""Spark's name for an error, with which its message begins."""


def java_class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


def java_classes(error: Py4JJavaError) -> list[str]:
    """Of the exception, and of those that caused it."""
    return [str(each.getClass().getName()) for each in _chain(error)]


def java_message(error: Py4JJavaError) -> str:
    """The first line of the Java message, cut, where it is one of `TELLING`; of Spark its name of the error."""
    return _message(error.java_exception)


def java_cause(error: Py4JJavaError) -> str:
    """Class and message of the Java exception, and of the innermost one that caused it."""
    chain = _chain(error)
    found, cause = _told(chain[0]), _told(chain[-1])
    return found if cause in found else f"{found}; caused by {cause}"


def problem(error: Exception) -> str:
    """Why what a person has asked for could not be done; a Java message may hold a value."""
    if isinstance(error, CalveError):
        return error.message
    return java_class(error) if isinstance(error, Py4JJavaError) else type(error).__name__


def _chain(error: Py4JJavaError) -> list[Any]:
    chain = [error.java_exception]
    while (cause := chain[-1].getCause()) is not None:
        chain.append(cause)
    return chain


def _told(exception: Any) -> str:
    message = _message(exception)
    return f"{exception.getClass().getName()}: {message}" if message else str(exception.getClass().getName())


def _message(exception: Any) -> str:
    name = str(exception.getClass().getName())
    lines = str(exception.getMessage() or "").splitlines()
    if not lines or not name.startswith((*TELLING, SPARK)):
        return ""
    if not name.startswith(SPARK):
        return lines[0][:300]
    condition = CONDITION.match(lines[0])
    return condition[0] if condition else ""


def read_json(io: Any, path: str) -> Any:
    """What a JSON file holds, read through a table's or a catalog's own file IO."""
    with closing(io.newInputFile(path).newStream()) as stream:
        return json.loads(bytes(stream.readAllBytes()))


def write_text(io: Any, path: str, text: str) -> None:
    """Write a file, or replace it."""
    with closing(io.newOutputFile(path).createOrOverwrite()) as stream:
        stream.write(bytearray(text.encode()))
