"""The step `mask`: personal data leaves the rows before anything is written. Rules choose the fields.

A single value becomes a token, a partly hidden value, or the start of its range. Null stays null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.config.masking_keys import FIRST_YEAR_DAY, FIRST_YEAR_US
from calve.config.steps import Mask, Rule
from calve.names import SYSTEM_COLUMN, nearest, quote
from calve.schema.change_events import UNAVAILABLE
from glue_jobs.columns.tokens import token, with_key
from glue_jobs.transform.row_columns import beside, has_changes, record, unusable

INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
FLOATS = (T.FloatType, T.DoubleType)
MOMENTS = {
    T.TimestampType: "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    T.TimestampNTZType: "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
Masks = Callable[[Column, T.DataType, Rule, str], Column]
DOMAIN = r"(@[A-Za-z0-9.-]+\.[A-Za-z][A-Za-z0-9-]*)\z"
"""The visible part of an e-mail address. Any other text after an @ is hidden: it may not be a domain."""
LONGS = 2.0**63


def masked(value: Column, kind: T.DataType, rule: Rule, path: str) -> Column:
    """Mask a value that is not a struct, list or map, by a rule other than `drop` and `null`.

    Raises Suspended: the rule cannot mask values of this type.
    """
    argument = rule.argument
    match rule.how:
        case "hash":
            shown = value if isinstance(kind, T.BinaryType) else text(value, kind)
            if shown is not None:
                return token(shown.cast("binary"))
            why = "its values have no text that is always the same to hash"
        case "partial":
            shown = text(value, kind) if isinstance(kind, (T.StringType, T.DecimalType, *INTEGERS)) else None
            if shown is not None:
                return _partial(shown, argument)
            why = "partial is for texts, whole numbers and decimals"
        case _ if isinstance(argument, int):
            if isinstance(kind, (T.DecimalType, *INTEGERS, *FLOATS)):
                return _band(value, kind, argument)
            why = f"only numbers generalise to bands of {argument}"
        case _:
            if isinstance(kind, (T.DateType, *MOMENTS)):
                return _span(value, kind, str(argument))
            why = f"only dates and timestamps generalise to the {argument}"
    raise unusable(f"{path} is of type {kind.simpleString()}: {why}")


def masked_but_placeholders(value: Column, kind: T.DataType, rule: Rule, path: str) -> Column:
    """As `masked`, but Debezium's placeholder stays: it is no personal data, and the value before it replaces it later."""
    made = masked(value, kind, rule, path)
    if not isinstance(kind, T.StringType | T.BinaryType):
        return made
    return F.when(value.cast("binary") == F.lit(UNAVAILABLE).cast("binary"), F.lit(UNAVAILABLE)).otherwise(
        made
    )


def text(value: Column, kind: T.DataType) -> Column | None:
    """The canonical text of a value, independent of its column type: 12 as int, long, decimal or string is `12`.

    Integers and decimals: decimal digits without needless zeros. Dates and times: ISO 8601, times in UTC with six decimals.
    Booleans: `true` and `false`. None: this type has no such text.
    """
    match kind:
        case T.StringType():
            return value
        case T.BooleanType() | T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType() | T.DateType():
            return value.cast("string")
        case T.DecimalType():  # Spark's own string may be like 1E-7
            plain = F.regexp_replace(F.format_number(value, kind.scale), ",", "")
            return F.regexp_replace(plain, r"\.?0+\z", "") if kind.scale else plain
        case T.TimestampType() | T.TimestampNTZType():
            return F.date_format(value, MOMENTS[type(kind)])
    return None


def _partial(value: Column, stays: str | int | None) -> Column:
    if not isinstance(stays, int):
        return F.concat(F.lit("***"), F.regexp_extract(value, DOMAIN, 1))
    length = F.length(value)
    stars = F.when(length > stays, length - stays).otherwise(length)
    return F.concat(F.repeat(F.lit("*"), stars), F.substring(value, stars + 1, F.lit(stays)))


def _span(value: Column, kind: T.DataType, unit: str) -> Column:
    """The first day of the year or month; null if the type has no such day."""
    if isinstance(kind, T.DateType):
        return F.when(F.unix_date(value) >= FIRST_YEAR_DAY, F.trunc(value, unit))
    moment = value.cast("timestamp")
    return F.when(F.unix_micros(moment) >= FIRST_YEAR_US, F.date_trunc(unit, moment)).cast(kind)


def _band(value: Column, kind: T.DataType, width: int) -> Column:
    """Round down to a multiple of `width`; null if the type has no such number."""
    if isinstance(kind, FLOATS):
        steps = value.cast("double") / F.lit(float(width))
        whole = F.floor(F.when(F.abs(steps) < LONGS, steps))
        return (whole.cast("double") * F.lit(float(width))).cast(kind)
    whole = F.floor(value) if isinstance(kind, T.DecimalType) else value.cast("long")
    return F.try_subtract(whole, F.pmod(whole, F.lit(width).cast("long"))).try_cast(kind)


Path = tuple[str, ...]


def rules(step: Mask, tags: Mapping[str, tuple[str, ...]], columns: T.StructType) -> dict[Path, Rule]:
    """The rule of each masked field. Rules inside a masked field are also returned, but have no effect.

    tags: the schema's tags by field path. For a field with several tags, the first in `step.tags` applies.
    Raises Suspended: a field does not exist. Also a tagged field, because it may exist under another name.
    """
    known = list(paths(columns))
    firsts = ((path, [step.tags[tag] for tag in step.tags if tag in own]) for path, own in tags.items())
    tagged = {path: found[0] for path, found in firsts if found}
    missing = [
        f"no column {path}" + (f"; did you mean {near}?" if (near := nearest(path, known)) else "")
        for path in step.fields
        if path not in known
    ]
    missing += [
        f"{path}, which the schema tags, is no column any more; mask it before other steps change it"
        for path, rule in tagged.items()
        if path not in known and rule.how != "keep" and path not in step.fields
    ]
    if missing:
        raise unusable("; ".join(missing))
    found = tagged | step.fields
    return {tuple(path.split(".")): rule for path, rule in found.items() if rule.how != "keep"}


def inside(found: Mapping[Path, Rule], name: str) -> dict[Path, Rule]:
    """The rules of a field and its nested fields, with paths relative to it."""
    return {path[1:]: rule for path, rule in found.items() if path[:1] == (name,)}


def is_dropped(kind: T.DataType, found: Mapping[Path, Rule]) -> bool:
    """Whether nothing remains of a field; `found`: the rules, with paths relative to it."""
    if rule := found.get(()):
        return rule.how == "drop"
    match kind:
        case T.StructType():
            return all(is_dropped(each.dataType, inside(found, each.name)) for each in kind.fields)
        case T.ArrayType():
            return is_dropped(kind.elementType, found)
        case T.MapType():
            return is_dropped(kind.valueType, found)
    return False


def paths(kind: T.DataType, prefix: str = "") -> Iterator[str]:
    match kind:
        case T.StructType():
            for each in kind.fields:
                yield prefix + each.name
                yield from paths(each.dataType, f"{prefix}{each.name}.")
        case T.ArrayType():
            yield from paths(kind.elementType, prefix)
        case T.MapType():
            yield from paths(kind.valueType, prefix)


def run_mask(
    frame: DataFrame,
    step: Mask,
    keys: Callable[[str | None], DataFrame],
    tags: Mapping[str, tuple[str, ...]],
) -> DataFrame:
    """Mask fields by path and by tag; in `_kafka`, mask the key and the headers.

    keys: returns `tokens.key_frame` for the id of a masking key, used only for hashing. tags: the schema's tags by field path.
    A struct without remaining fields is dropped. Map keys stay unchanged.
    Raises Suspended: a field does not exist, or the rule cannot mask its type.
    """
    columns = record(frame)
    found = rules(step, tags, columns)
    leaf = masked_but_placeholders if has_changes(frame) else masked
    kept = _fields(columns, found, "", lambda name: F.col(quote(name)), leaf)
    others = [
        _record(step).alias(name) if name == SYSTEM_COLUMN else F.col(quote(name)) for name in beside(frame)
    ]
    hashes = "hash" in (step.key, step.headers, *(rule.how for rule in found.values()))
    return (with_key(frame, keys(step.masking_key)) if hashes else frame).select(*kept, *others)


def _field(value: Column, kind: T.DataType, found: Mapping[Path, Rule], path: str, leaf: Masks) -> Column:
    if not found:
        return value
    rule = found.get(())
    if rule is not None and rule.how == "null":
        return F.lit(None).cast(kind)
    match kind:
        case T.ArrayType():
            return F.transform(value, lambda each: _field(each, kind.elementType, found, path, leaf))
        case T.MapType():
            return F.transform_values(value, lambda _, each: _field(each, kind.valueType, found, path, leaf))
        case T.StructType() if rule is not None:
            fields = ", ".join(paths(kind, f"{path}."))
            raise unusable(
                f"{path} has fields: drop and null take it whole, {rule.how} needs one of {fields}"
            )
        case T.StructType():
            return F.when(
                value.isNotNull(), F.struct(*_fields(kind, found, f"{path}.", value.__getitem__, leaf))
            )
    assert rule is not None  # noqa: S101 a path of `rules` leads to a field
    return leaf(value, kind, rule, path)


def _fields(
    kind: T.StructType,
    found: Mapping[Path, Rule],
    above: str,
    at: Callable[[str], Column],
    leaf: Masks,
) -> list[Column]:
    """The fields that are not dropped, masked. at: the value of a field. leaf: masks a single value, as `masked`."""
    rest = ((each.name, each.dataType, inside(found, each.name)) for each in kind.fields)
    return [
        _field(at(name), held, ruled, f"{above}{name}", leaf).alias(name)
        for name, held, ruled in rest
        if not is_dropped(held, ruled)
    ]


def _record(step: Mask) -> Column:
    """`_kafka` with its key and header values masked. Its type stays the same."""
    record = kafka = F.col(SYSTEM_COLUMN)
    if step.key != "keep":
        record = record.withField("key", _received(kafka["key"], step.key))
    if step.headers != "keep":
        headers = F.transform(
            kafka["headers"], lambda each: each.withField("value", _received(each["value"], step.headers))
        )
        record = record.withField("headers", headers)
    return record


def _received(value: Column, how: str) -> Column:
    return (token(value) if how == "hash" else F.lit(None)).cast("binary")
