"""Java over py4j, where every call, and every part of a name, is a request to the JVM.

py4j converts lists, dictionaries and sets that are arguments: PySpark's gateway has `auto_convert`.
Texts about Java exceptions, for logs or a table's state, never quote a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from calve.config.spark_conf import CATALOG
from calve.errors import CalveError, Fatal


class _Class(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A Java class. Each of its static methods and inner classes is requested once."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            found = _Class(found._fqn, found._gateway_client)
        if isinstance(found, (JavaClass, JavaMember)):
            self.__dict__[name] = found
        return found


class _Names:
    """The packages and classes of one Java package. Each is requested once."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._found, name)
        if isinstance(value, JavaClass):
            value = _Class(value._fqn, value._gateway_client)
        known = _Names(value) if isinstance(value, JavaPackage) else value
        self.__dict__[name] = known
        return known


def remember_names(spark: SparkSession) -> None:
    """Have the session's JVM view keep the packages and classes that this code, PySpark and py4j use.

    Otherwise py4j requests each part of `jvm.org.apache...` at each use, and the JVM searches all jars for a class `org`.
    That took a tenth of the time of small rounds. PySpark converts each exception by 13 such names.
    """
    jvm: Any = spark._jvm
    for name in ("java", "org", "com", "py4j", "scala", "software"):
        if name not in vars(jvm):
            vars(jvm)[name] = _Names(getattr(jvm, name))
    for name in ("PythonUtils", "functions"):
        vars(jvm)[name] = getattr(jvm, name)


def elements(iterable: Any) -> Iterator[Any]:
    """The elements of a Java Iterable.

    py4j iterates only collections, and ends by an exception whose conversion sends some 70 requests to the JVM.
    """
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def method(gateway: Any, owner: str, name: str) -> Any:
    """A Java method without arguments, by reflection. owner: the full name of its class."""
    java = gateway.jvm.java.lang
    loader = java.Thread.currentThread().getContextClassLoader()
    kind = java.Class.forName(owner, True, loader)  # noqa: FBT003 Java's
    return kind.getMethod(name, gateway.new_array(java.Class, 0))


@cache
def getter(gateway: Any, owner: str, name: str) -> Any:
    """The same as a `java.util.function.Function`. Java's streams call it without a request."""
    java = gateway.jvm.java.lang
    handle = java.invoke.MethodHandles.publicLookup().unreflect(method(gateway, owner, name))
    function = java.Class.forName("java.util.function.Function")
    return java.invoke.MethodHandleProxies.asInterfaceInstance(function, handle)


def values(jvm: Any, stream: Any, *getters: Any) -> list[Any]:
    """The result of the methods, one after the other, for each element of a Java stream: texts and numbers, by few requests."""
    for each in getters:
        stream = stream.map(each)
    return list(_as_python(jvm, stream.collect(jvm.java.util.stream.Collectors.toList())))


def strings(jvm: Any, mapping: Any) -> dict[str, str]:
    """A Java map of strings, over JSON: py4j would send several requests for each entry."""
    return dict(_as_python(jvm, mapping))


def _as_python(jvm: Any, value: Any) -> Any:
    return json.loads(_mapper(jvm).writeValueAsString(value))


@cache
def _mapper(jvm: Any) -> Any:
    """All threads may use it: https://javadoc.io/doc/com.fasterxml.jackson.core/jackson-databind, `ObjectMapper`."""
    return jvm.com.fasterxml.jackson.databind.ObjectMapper()


def catalog_settings(spark: SparkSession) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}."
    every = spark.sparkContext.getConf().getAll()
    return {key.removeprefix(prefix): value for key, value in every if key.startswith(prefix)}


ENDING = (Fatal, Py4JNetworkError, ConnectionError)
"""Errors after which the job as a whole cannot go on."""
TELLING = ("org.apache.iceberg.", "org.apache.kafka.", "software.amazon.awssdk.", "java.io.", "java.net.")
"""Packages of exceptions about systems. Messages of others, including Spark's, may quote a value."""
SPARK = "org.apache.spark."
CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]*\]")
"""Spark's name of an error, at the start of its message."""


def java_class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


def java_classes(error: Py4JJavaError) -> list[str]:
    return [str(each.getClass().getName()) for each in _chain(error)]


def java_message(error: Py4JJavaError) -> str:
    """The first line of the Java message, shortened, if its class is in `TELLING`; for Spark only the error's name."""
    return _message(error.java_exception)


def java_cause(error: Py4JJavaError) -> str:
    chain = _chain(error)
    found, cause = _described(chain[0]), _described(chain[-1])
    return found if cause in found else f"{found}; caused by {cause}"


def problem(error: Exception) -> str:
    """Why a person's request failed. Only the class of a Java exception: its message may hold a value."""
    if isinstance(error, CalveError):
        return error.message
    return java_class(error) if isinstance(error, Py4JJavaError) else type(error).__name__


def _chain(error: Py4JJavaError) -> list[Any]:
    chain = [error.java_exception]
    while (cause := chain[-1].getCause()) is not None:
        chain.append(cause)
    return chain


def _described(exception: Any) -> str:
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
    with closing(io.newInputFile(path).newStream()) as stream:
        return json.loads(bytes(stream.readAllBytes()))


def write_text(io: Any, path: str, text: str) -> None:
    with closing(io.newOutputFile(path).createOrOverwrite()) as stream:
        stream.write(bytearray(text.encode()))
