"""Expressions that Spark has resolved, as `glue_jobs.columnar.steps.expressions`; what is not known to be the same is refused.

Spark's optimizer may leave out, or add up, what could have failed. So what may fail stands only where it does not do that: not
beside a constant that settles an AND or OR, not twice in a comparison, and in nothing that computes an operand only sometimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from calve.engines import Unsupported
from glue_jobs.columnar.steps.expressions import At, Constant, Expression
from glue_jobs.columnar.steps.function_planning import Planned, kind_of, planned_call
from glue_jobs.java import elements


def spelled(frame: DataFrame, path: Sequence[str]) -> tuple[str, ...]:
    """A path of names, which are found in any case of letters, as the columns spell it."""
    kind: Any = frame.schema
    found: list[str] = []
    for name in path:
        field = next(each for each in kind.fields if each.name.lower() == name.lower())
        kind = field.dataType
        found.append(field.name)
    return tuple(found)


class Planning:
    """Of expressions on the columns of a frame. place: where calve.yaml has them."""

    def __init__(self, frame: DataFrame, place: str) -> None:
        self._frame = frame
        self._place = place
        jvm: Any = frame.sparkSession._jvm
        self._tree = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression
        self._replaceable = jvm.java.lang.Class.forName(
            "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
        )
        self._shared: dict[str, Planned] = {}

    def of(self, column: Column | str) -> Expression:
        """Of an expression, or of the column of a name.

        Raises:
            Unsupported: it is not known to be computed the same.
        """
        if isinstance(column, str):
            return At(spelled(self._frame, [column]))
        return self._planned(self._tree(column._jc)).of

    def _planned(self, tree: Any) -> Planned:
        if self._replaceable.isInstance(tree):
            return self._planned(tree.replacement())
        if tree.foldable():
            return self._constant(tree)
        match str(tree.getClass().getSimpleName()):
            case "AttributeReference":
                return self._at(tree, (str(tree.name()),))
            case "Alias":
                return self._planned(tree.child())
            case "GetStructField":
                return self._field(tree)
            case "With":
                for each in elements(tree.defs()):
                    self._shared[each.id().toString()] = self._planned(each.child())
                return self._planned(tree.child())
            case "CommonExpressionRef":
                return self._shared[tree.id().toString()]
            case name:
                found = planned_call(name, [self._planned(each) for each in elements(tree.children())], tree)
        if found is None:
            raise self._refused(tree)
        return found

    def _at(self, tree: Any, path: tuple[str, ...]) -> Planned:
        return Planned(At(spelled(self._frame, path)), kind_of(tree))

    def _field(self, tree: Any) -> Planned:
        above = self._planned(tree.child()).of
        if not isinstance(above, At):
            raise self._refused(tree)
        return self._at(tree, (*above.path, str(tree.childSchema().fieldNames()[tree.ordinal()])))

    def _constant(self, tree: Any) -> Planned:
        """What Spark computes of it."""
        kind = kind_of(tree)
        try:
            value = tree.eval(None)
        except (Py4JJavaError, PySparkException):
            raise Unsupported(f"{self._place}: {tree.sql()} fails for every record") from None
        if kind is None:
            raise self._refused(tree)
        if value is not None and pa.types.is_decimal(kind):
            value = Decimal(value.toString())
        elif value is not None and pa.types.is_string(kind):
            value = str(value.toString())
        return Planned(Constant(value, kind), kind)

    def _refused(self, tree: Any) -> Unsupported:
        return Unsupported(f"{self._place}: {tree.prettyName()} is computed by rows alone")
