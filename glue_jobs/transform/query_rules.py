"""Rules for queries: each must depend on the record alone, always give the same values, and reach nothing outside it.

Nodes are those of Catalyst trees, identified by the simple names of their classes. Spark's errors become sentences from their
class and parameters, never from a plan.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException

from calve.errors import Suspended
from glue_jobs.process.java import elements, java_class
from glue_jobs.transform.query_costs import COSTLY, PATTERNS, name_of, require_bounded_cost
from glue_jobs.transform.row_columns import unusable

LONGEST = 300
LINE = re.compile(r"\(line (\d+), pos (\d+)\)")
GENERATOR = (
    "a function that makes rows, such as explode, belongs into a step of its own: use flatten: {explode: ...}"
)

SOURCE = "source"
ONLY = "a query is one SELECT ... FROM source [WHERE ...]"
NOT_A_SELECT = {
    **dict.fromkeys(("Join", "AsOfJoin", "LateralJoin"), "a join: use lookup"),
    "UnresolvedWith": "WITH",
    "Aggregate": "GROUP BY or an aggregate function: use the mode aggregate",
    "UnresolvedHaving": "HAVING",
    "Distinct": "DISTINCT: use deduplicate",
    "Sort": "ORDER BY",
    **dict.fromkeys(("GlobalLimit", "LocalLimit"), "LIMIT"),
    "Offset": "OFFSET",
    "Sample": "TABLESAMPLE",
    "Window": "a window function",
    "WithWindowDefinition": "WINDOW",
    "UnresolvedHint": "a hint",
    "Generate": f"LATERAL VIEW: {GENERATOR}",
    "Union": "UNION",
    "Except": "EXCEPT",
    "Intersect": "INTERSECT",
    "RelationTimeTravel": "a version of a table",
    "UnresolvedTableValuedFunction": "a function that makes a table",
    "OneRowRelation": f"no FROM {SOURCE}",
    "PlanWithUnresolvedIdentifier": "IDENTIFIER",
    "PipeOperator": "|>",
    "ScriptTransformation": "TRANSFORM ... USING",
    "RepartitionByExpression": "DISTRIBUTE BY or CLUSTER BY",
}
"""Nodes of a parsed plan -> their name in SQL."""
NOT_OF_A_RECORD = {
    **dict.fromkeys(("ScalarSubquery", "Exists", "ListQuery"), "a query in the query"),
    **dict.fromkeys(("WindowExpression", "UnresolvedWindowExpression"), "a window function"),
}
"""Nodes of a parsed expression -> their name in SQL."""
MOMENT = {"CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"}
RANDOM = {"AesEncrypt", "Rand", "Randn", "RandStr", "Shuffle", "Uniform", "Uuid"}
PLACE = {
    "CurrentCatalog",
    "CurrentDatabase",
    "CurrentTimeZone",
    "CurrentUser",
    "InputFileBlockLength",
    "InputFileBlockStart",
    "InputFileName",
    "MonotonicallyIncreasingID",
    "SparkPartitionID",
    "SparkVersion",
}
REACHING = {
    "CallMethodViaReflection",
    "FromAvro",
    "FromProtobuf",
    "SchemaOfAvro",
    "SchemaOfXml",
    "ToAvro",
    "ToProtobuf",
    "TryReflect",
    "XmlToStructs",
}
"""Depending on their arguments, these call Java, or load a schema or a part of a document from a file or server."""
OTHERWISE = {
    **dict.fromkeys(MOMENT, "depends on the moment; _kafka.timestamp is the record's own"),
    **dict.fromkeys(RANDOM, "gives something else each time"),
    **dict.fromkeys(PLACE, "depends on where it is computed"),
    **dict.fromkeys(REACHING, "may reach what is outside of the record"),
}
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
FOREIGN = (EXPRESSIONS + "aggregate.", EXPRESSIONS + "xml.")
CONSTANT = {
    **PATTERNS,
    **dict.fromkeys(("FormatString", "StringSpace"), (0,)),
    **dict.fromkeys(("ArrayInsert", "ArrayRepeat", "BinaryPad", "FormatNumber", "ILike", "Like"), (1,)),
    **dict.fromkeys(("StringLPad", "StringRPad", "StringRepeat"), (1,)),
    "ParseUrl": (1, 2),
    "Sequence": (0, 1),
}
"""Arguments that control size or pattern. Values of a hostile record could use all memory or time with a few bytes."""
PARSED_AS = {"JsonToStructs": "schema", "CsvToStructs": "schema", "VariantGet": "targetType"}
TIMESTAMP = re.compile(r'"(?:type|elementType|keyType|valueType)": "timestamp"')
TO_MOMENT = {"Cast", "ParseToDate", "ParseToTimestamp"}
MOMENT_TYPE = re.compile(r'"(?:date|timestamp|timestamp_ntz)"')
RELATIVE = re.compile(
    r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*r?['\"]\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE
)
ABSOLUTE = re.compile(r"\s*[+-]?\d{4}")
OF_THE_DAY = (
    'without a date is that time of the day on which it is computed: use to_timestamp(text, "format")'
)


def require_select(plan: list[Node]) -> None:
    """Refuse a parsed plan that is not one select from `source`."""
    kinds = [kind(node) for node in plan]
    rest = iter(kinds)
    at = next(rest, "")
    for expected in ("Project", "Filter", "SubqueryAlias"):
        at = next(rest, "") if at == expected else at
    if kinds[0] != "Project" or at != "UnresolvedRelation" or list(rest):
        if kinds.count("Project") > 1 and kinds[0] in ("Project", "SubqueryAlias"):
            raise unusable(f"{ONLY}; this has a query in the query")
        raise _other(kinds)
    name = str(plan[-1]["multipartIdentifier"]).strip("[]")
    if name.lower() != SOURCE:
        raise unusable(
            f'"{name}" is an undeclared table: a query reads {SOURCE}; for columns of another table use lookup'
        )
    if plan[-1]["isStreaming"]:
        raise unusable(f"{ONLY}; this has STREAM")


def require_shape(analysed: list[Node], expected: list[str]) -> None:
    """Refuse what only the resolved plan shows to need more than one record, such as aggregate functions."""
    kinds = [kind(node) for node in analysed]
    if kinds != expected:
        raise _other(kinds)


def _other(kinds: list[str]) -> Suspended:
    found = [NOT_A_SELECT[each] for each in kinds if each in NOT_A_SELECT]
    return unusable(
        f"{ONLY}; this has {found[0]}" if found else f"{ONLY}; this is something else ({kinds[0]})"
    )


def require_own(parsed: list[Node], text: str) -> None:
    """Refuse what the parsed text shows: subqueries, functions of a catalog, dates relative to today."""
    for node in everywhere(parsed):
        if kind(node) in NOT_OF_A_RECORD:
            raise unusable(f"{ONLY}; this has {NOT_OF_A_RECORD[kind(node)]}")
        if kind(node) == "UnresolvedFunction" and "," in node["nameParts"]:
            name = node["nameParts"].strip("[]").replace(", ", ".")
            raise unusable(f'"{name}" is a function of a catalog: only those of Spark SQL itself can be used')
    if relative := RELATIVE.search(text):
        raise unusable(f"{relative[0]}' depends on the moment; _kafka.timestamp is the record's own")


def require_same_always(analysed: list[Node], expressions: list[Any]) -> None:
    """Refuse expressions that need more than the record. `expressions` are the same as Java objects."""
    found = list(everywhere(analysed))
    for node in found:
        name, words = str(node["class"]), kind(node)
        if words in OTHERWISE:
            raise unusable(f"{_snake(words)} {OTHERWISE[words]}")
        if (".expressions." in name and not name.startswith(EXPRESSIONS)) or name.startswith(FOREIGN):
            raise unusable(f"{_snake(words)} cannot be used in a query")
        if words in PARSED_AS and TIMESTAMP.search(json.dumps({"type": node[PARSED_AS[words]]})):
            raise unusable(f"{_snake(words)}: a timestamp {OF_THE_DAY}, on a field that is a string")
    if any(kind(node) in CONSTANT.keys() | TO_MOMENT | COSTLY for node in found):
        for each in expressions:
            _require_bounded(each)
    if not all(each.deterministic() for each in expressions):
        raise unusable("the query gives something else each time")


def _require_bounded(expression: Any) -> None:
    """Refuse an expression, or one below it, that may take more memory or time than its record allows."""
    name, arguments = name_of(expression), list(elements(expression.children()))
    if not all(each.foldable() for at, each in enumerate(arguments) if at in CONSTANT.get(name, ())):
        raise unusable(
            f"{expression.prettyName()}: the size, pattern or format of its result must be a constant of the query. "
            "A value of a record could use all memory or time"
        )
    if name in TO_MOMENT and len(arguments) == 1:
        _require_absolute(arguments[0], str(expression.dataType().json()))
    require_bounded_cost(expression, name, arguments)
    for each in arguments:
        _require_bounded(each)


def _require_absolute(text: Any, moment: str) -> None:
    """Refuse a text as date or timestamp that Spark completes from the clock. `moment`: a type as JSON."""
    if not MOMENT_TYPE.search(moment) or '"string"' not in text.dataType().json():
        return
    if text.foldable() and not ABSOLUTE.match(str(text.toString())):
        raise unusable(
            f"{text.toString()} as a date or timestamp depends on the moment; write a date as 2026-01-31"
        )
    if '"timestamp"' in moment and not text.foldable():
        raise unusable(f"{text.sql()}: a text as timestamp {OF_THE_DAY}")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@contextmanager
def query_errors(columns: Sequence[str], made: Sequence[str] = ()) -> Iterator[None]:
    """Turn Spark's parse and analysis errors into `unusable`. made: the columns that the query itself names."""
    try:
        yield
    except PySparkException as error:
        raise unusable(_sentence(error, columns, made)) from None
    except Py4JJavaError as error:
        raise unusable(f"Spark cannot make sense of it ({java_class(error)})") from None


def _sentence(error: PySparkException, columns: Sequence[str], made: Sequence[str]) -> str:
    condition = error.getCondition() or type(error).__name__
    given = {name: text.replace("`", "") for name, text in (error.getMessageParameters() or {}).items()}
    match condition.split("."):
        case ["UNRESOLVED_COLUMN" | "UNRESOLVED_FIELD", *_]:
            return _unknown(given.get("objectName") or given.get("fieldName", ""), columns, made)
        case ["FIELD_NOT_FOUND"]:
            return f'"{given["fieldName"]}" is no field; there are {given["fields"]}'
        case ["UNRESOLVED_ROUTINE"]:
            return f'"{given["routineName"]}" is no function of Spark SQL'
        case ["UNSUPPORTED_GENERATOR", *_]:
            return GENERATOR
        case ["DATATYPE_MISMATCH", "FILTER_NOT_BOOLEAN"]:
            return f"{given['filter']} is {given['type']}, and no condition"
        case ["DATATYPE_MISMATCH", *_]:
            expression = given.pop("sqlExpr", "")
            return _short(f"{expression} has types that do not fit: {_listed(given)}")
    if isinstance(error, ParseException):
        said = f"syntax error at {given['error']}{given['hint']}" if "hint" in given else _words(condition)
        place = LINE.search(str(error))
        return f"{said} (line {place[1]}, character {int(place[2]) + 1})" if place else said
    given.pop("docroot", None)
    return _short(f"{_words(condition)}{': ' if given else ''}{_listed(given)}")


def _listed(given: dict[str, str]) -> str:
    return ", ".join(f"{_words(name)} {text}" for name, text in given.items())


def _unknown(name: str, columns: Sequence[str], made: Sequence[str]) -> str:
    if name.lower() in (each.lower() for each in made):
        return f'"{name}" is made by the query itself: use two sql steps'
    by_lower = {each.lower(): each for each in columns}
    near = difflib.get_close_matches(name.lower().removeprefix("source."), by_lower, n=2, cutoff=0.6)
    meant = " or ".join(f'"{by_lower[each]}"' for each in near)
    hint = f"; did you mean {meant}?" if near else f"; there are {_short(', '.join(columns))}"
    return f'"{name}" is no column{hint}'


def _words(name: str) -> str:
    """`requiredType` and `PARSE_SYNTAX_ERROR` as words."""
    if name.isupper():
        return name.replace("_", " ").replace(".", ", ").lower()
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


Node = dict[str, Any]


def nodes(tree: Any) -> list[Node]:
    """The nodes of a Java TreeNode, each before its children; `num-children` is their number."""
    found: list[Node] = json.loads(tree.toJSON())
    return found


def kind(node: Node) -> str:
    return str(node["class"]).rsplit(".", 1)[-1]


def everywhere(part: Any) -> Iterator[Node]:
    """All nodes, including expressions of plans, plans of expressions, and nodes that are not children."""
    if isinstance(part, dict):
        if "class" in part:
            yield part
        for value in part.values():
            yield from everywhere(value)
    elif isinstance(part, list):
        for value in part:
            yield from everywhere(value)
