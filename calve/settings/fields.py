"""The base class of all sections of calve.yaml, and types of single values with their error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo

from calve.config.job import Start
from calve.config.publishing import Function
from calve.config.spark_conf import OWN_SETTINGS
from calve.config.topics import expression_problem, naming_problem
from calve.names import DATABASE_NAME, FIELD_NAME, field_problem, table_problem, topic_problem
from calve.schema.columns import Transform
from calve.settings import notation, schedules
from calve.settings.problems import Invalid, InvalidParts, Problem, one_of
from calve.stored import hints_of

_T = TypeVar("_T")


class Section(BaseModel):
    """A mapping of calve.yaml. An empty section (`lake:`) counts as `{}`, and a key without a value as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return {} if raw is None else raw
        return {key: value for key, value in raw.items() if value is not None or key not in cls.model_fields}

    def problems(self) -> Iterable[Problem]:
        """Invalid combinations of its keys."""
        return ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := list(self.problems()):
            raise InvalidParts(problems)
        return self

    @classmethod
    def keys(cls) -> dict[str, FieldInfo]:
        """The known keys, this section's before inherited ones."""
        fields = sorted(cls.model_fields.items(), key=lambda each: each[0] not in cls.__annotations__)
        return {field.alias or name: field for name, field in fields}


UNITS = ("", "_s", "_ms", "_days", "_records", "_id")
"""A field of a resolved value is named as its key in calve.yaml, and may name a unit behind it; or it is in `FIELDS`."""
FIELDS = {
    "flush_size": "flush_bytes",
    "partition_flush_size": "partition_flush_bytes",
    "file_size": "file_bytes",
    "kind": "link_kind",
    "days": "link_days",
}


def resolved(kind: type[_T], *sections: Section | None, **more: Any) -> _T:
    """A value of a dataclass: `more`, else what the last of the sections says, else the dataclass' default.

    Sections inside of the sections become the dataclass that is the type of their field.
    """
    hints = hints_of(kind)  # type: ignore[arg-type]
    said: dict[str, list[Any]] = {}
    for section in sections:
        for key, value in section or ():
            names = [FIELDS.get(key, key), *(f"{key}{unit}" for unit in UNITS)]
            field = next((each for each in names if each in hints), None)
            if field is not None and field not in more and value is not None:
                said.setdefault(field, []).append(tuple(value) if isinstance(value, list) else value)
    for field, values in said.items():
        inner = values[-1]
        if isinstance(inner, Section):
            alternatives = (hints[field], *get_args(hints[field]))
            dataclass: Any = next(each for each in alternatives if is_dataclass(each))
            inner = resolved(dataclass, *values)
        more[field] = inner
    return kind(**more)


_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SECRET = re.compile(r"(env|file|aws):\S.*")
_IN_AWS = re.compile(r"(arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]+:secret:)?[A-Za-z0-9/_+=.@-]{1,512}")
_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^\s/?#:\[\]]+)(:[0-9]{1,5})?(/[^\s?#]*)?")
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_SPARK_KEY = re.compile(r"spark(\.[A-Za-z0-9_-]+)+")
_DELIMITERS = {",": "a comma", ";": "a semicolon", "|": "a bar", "\t": 'a tab ("\\t")'}
_FOLDER = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9!_.'()=-]+"  # no "*": in a policy it would match every folder


_TWICE = '"{value}" is named twice'
_USED = '"{value.column}" is used like this in [{place}] already'


def _distinct(identity: Callable[[Any], object], reason: str) -> AfterValidator:
    return AfterValidator(lambda values: notation.distinct(values, identity, reason))


def _without(problem: Callable[[str], str | None]) -> AfterValidator:
    def check(text: str) -> str:
        if reason := problem(text):
            raise Invalid(reason)
        return text

    return AfterValidator(check)


def matching(pattern: str | re.Pattern[str], what: str, fix: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise Invalid(f'"{text}" is not {"an" if what[0] in "aeA" else "a"} {what}', fix)
        return text

    return AfterValidator(check)


def _id(prefix: str, what: str) -> AfterValidator:
    return matching(rf"{prefix}-[0-9a-f]+", what, f'write its id, such as "{prefix}-0123456789abcdef0"')


def _arn(pattern: str, what: str, example: str) -> AfterValidator:
    return matching(f"arn:aws[a-z-]*:{pattern}", f"ARN of {what}", f"write it as {example}")


def _name(what: str) -> AfterValidator:
    return matching(r"[a-z][a-z0-9_-]{0,39}", what, "use a-z, 0-9, _ and -, starting with a letter")


def _file(name: str, info: ValidationInfo) -> str:
    """A path that is valid in any working directory. The context of the validation is the folder of calve.yaml."""
    return str(((info.context or Path()) / name).resolve())


def _secret(reference: str, info: ValidationInfo) -> str:
    if not _SECRET.fullmatch(reference):  # not quoted in the message: it may be the secret itself
        fix = "use env:NAME, file:PATH or aws:SECRET_ID; the secret itself stays out of this file"
        raise Invalid("is not a reference to a secret", fix)
    kind, _, name = reference.partition(":")
    if kind == "aws" and not _IN_AWS.fullmatch(name):  # in a policy "*" would match every secret
        raise Invalid(
            "is not a secret of AWS Secrets Manager",
            "write aws:NAME or aws:ARN of one secret, without wildcards",
        )
    return f"file:{_file(name, info)}" if kind == "file" else reference


def _one(text: str) -> str:
    if "*" in text or "?" in text:
        raise Invalid(f'"{text}" has a wildcard', "name exactly one: policies take the name over as it is")
    return text


def _url(url: str) -> str:
    if "@" in url:
        raise Invalid(
            "must not contain a user or a password", "move them to `secret`, such as secret: env:REGISTRY"
        )
    if not _URL.fullmatch(url):
        raise Invalid(f'"{url}" is not a URL', "write it as https://host:port")
    return url.rstrip("/")


def _servers(text: str) -> str:
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        match = _SERVER.fullmatch(server)
        if not match or not 0 < int(match[2]) < 65536:
            fix = "write host:port, several of them separated by commas"
            raise Invalid(f'"{server}" is not a server', fix)
    return ",".join(servers)


def _delimiter(text: str) -> str:
    if text not in _DELIMITERS:
        raise Invalid(f'"{text}" is not a delimiter', f"use {one_of(_DELIMITERS.values())}")
    return text


def _filter(text: str) -> str:
    from pyiceberg.expressions.parser import parse
    from pyparsing import ParseException

    try:
        parse(text)
    except (ParseException, ValueError):
        # Not the parser's message: it lists the grammar and only names the start of the filter.
        fix = "compare columns with values: symbol = 'ZVZZT' and price > 10; also in, between, is null, like 'Z%'"
        raise Invalid(f'"{text}" cannot be read', fix) from None
    return text


def _days(raw: Any) -> int:
    days = notation.seconds(raw) / notation.SECONDS["d"]
    if not days.is_integer():
        raise Invalid(f'"{raw}" is not a number of whole days', 'write it as "90d"')
    return int(days)


def _spark_setting(name: str) -> str:
    if not _SPARK_KEY.fullmatch(name):
        raise Invalid(f'"{name}" is not a Spark setting', "write it as spark.name")
    if OWN_SETTINGS.fullmatch(name):
        raise Invalid("is a setting of calve itself", "remove it")
    return name


def _spark_value(raw: Any) -> str:
    text = str(raw).lower() if isinstance(raw, bool) else str(raw)
    if not isinstance(raw, bool | int | float | str) or not text:
        raise Invalid("must be text", "put it in quotes")
    if re.search(r"\s", text):
        raise Invalid("contains a space, and spaces separate settings", "write it without")
    return text


def _quantity(read: Callable[[Any], _T], units: Iterable[str]) -> BeforeValidator:
    """A number and its unit; `read` gives the parsed value."""
    written = Field(pattern=rf"^\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(units)})\s*$")
    return BeforeValidator(read, json_schema_input_type=Annotated[str, written])


def from_text(read: Callable[[Any], _T]) -> BeforeValidator:
    return BeforeValidator(read, json_schema_input_type=str)


Text = Annotated[str, Field(min_length=1)]
Filter = Annotated[str, AfterValidator(_filter)]
Deployment = Annotated[
    str, matching(r"[a-z][a-z0-9-]{0,39}", "name", "use a-z, 0-9 and -, starting with a letter (at most 40)")
]
JobName = Annotated[str, _name("job name")]
Servers = Annotated[str, AfterValidator(_servers)]
Url = Annotated[str, AfterValidator(_url)]
One = Annotated[Text, AfterValidator(_one)]
Secret = Annotated[str, AfterValidator(_secret)]
File = Annotated[str, Field(min_length=1), AfterValidator(_file)]

Database = Annotated[str, matching(DATABASE_NAME, "database name", "use a-z, 0-9, _ and -")]
ClusterIds = Annotated[
    list[
        Annotated[str, matching(r"[A-Za-z0-9_-]+", "cluster id", "write what Kafka says, such as lkc-1a2b")]
    ],
    Field(min_length=1),
    _distinct(str.lower, _TWICE),
]
Bucket = Annotated[
    str, matching(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "bucket name", "use 3 to 63 of a-z, 0-9, - and .")
]
Prefix = Annotated[
    str, matching(rf"{_FOLDER}(/{_FOLDER})*", "prefix", 'write it as "lake/raw", without / at its ends')
]
Region = Annotated[str, matching(r"[a-z]{2}(-[a-z]+)+-\d", "region", 'write it as "eu-west-1"')]

TableKey = Annotated[str, _without(lambda name: naming_problem(name) if "{" in name else table_problem(name))]
Topic = Annotated[str, _without(topic_problem)]
Topics = Annotated[str, Field(min_length=1), _without(expression_problem)]
FieldPath = Annotated[str, _without(field_problem)]
ColumnName = Annotated[
    str,
    matching(FIELD_NAME, "column name", "use letters, digits and _, starting with a letter or _"),
    _without(field_problem),
]
CountedValue = Annotated[str, matching(r"[A-Za-z0-9_-]{1,64}", "value", "use letters, digits, _ and -")]
Duration = Annotated[float, _quantity(notation.seconds, notation.SECONDS)]
Milliseconds = Annotated[int, _quantity(notation.milliseconds, notation.SECONDS)]
Size = Annotated[int, _quantity(notation.size_bytes, notation.BYTES)]
Share = Annotated[float, _quantity(notation.share, "%")]
StartingPoint = Annotated[
    Start,
    BeforeValidator(
        notation.start,
        json_schema_input_type=Literal["earliest", "latest"] | dict[Literal["timestamp", "offsets"], Any],
    ),
]
Partitioning = Annotated[
    list[Annotated[Transform, from_text(notation.partition_field)]],
    # Iceberg refuses two time transforms of a column, and any other transform of it twice.
    _distinct(
        lambda each: (each.column.lower(), "time" if each.name in notation.TIME_TRANSFORMS else each.name),
        _USED,
    ),
]
Sorting = Annotated[
    list[Annotated[Transform, from_text(notation.sort_field)]],
    _distinct(lambda each: (each.column.lower(), each.name, each.argument), _USED),
]
Column = Annotated[str, from_text(notation.column)]
Columns = Annotated[list[Column], _distinct(str.lower, _TWICE)]
Measures = dict[ColumnName, Annotated[tuple[Function, str | None], from_text(notation.measure)]]

Schedule = Annotated[str, AfterValidator(schedules.expression)]
Run = Annotated[str, AfterValidator(schedules.run)]
TimeZone = Annotated[str, AfterValidator(schedules.time_zone)]
MaintenanceWindow = Annotated[str, AfterValidator(schedules.maintenance_window)]
Days = Annotated[int, _quantity(_days, notation.SECONDS)]

Worker = Literal["G.025X", "G.1X", "G.2X", "G.4X", "G.8X", "G.12X", "G.16X", "R.1X", "R.2X", "R.4X", "R.8X"]
SparkConf = dict[
    Annotated[str, AfterValidator(_spark_setting)],
    Annotated[str, BeforeValidator(_spark_value, json_schema_input_type=bool | int | float | str)],
]
ClusterArn = Annotated[
    str,
    _arn(
        r"kafka:[a-z0-9-]+:[0-9]{12}:cluster/[^/\s]+/[^/\s]+",
        "an MSK cluster",
        "arn:aws:kafka:REGION:ACCOUNT:cluster/NAME/UUID",
    ),
]
TableBucket = Annotated[
    str,
    _arn(
        r"s3tables:[a-z0-9-]+:[0-9]{12}:bucket/[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
        "a table bucket",
        "arn:aws:s3tables:REGION:ACCOUNT:bucket/NAME",
    ),
]
Vpc = Annotated[str, _id("vpc", "VPC")]
Subnet = Annotated[str, _id("subnet", "subnet")]
SecurityGroup = Annotated[str, _id("sg", "security group")]

RoleArn = Annotated[
    str, _arn(r"iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+", "a role", "arn:aws:iam::ACCOUNT:role/NAME")
]
Namespace = Annotated[
    str, matching(r"[A-Za-z0-9_-]{1,200}", "namespace", "use letters, digits, - and _; one level")
]
SnowflakeName = Annotated[
    str,
    matching(
        r"[A-Za-z_][A-Za-z0-9_$]{0,254}",
        "name for Snowflake",
        "use letters, digits, _ and $, starting with a letter or _",
    ),
]
SnowflakeAccount = Annotated[
    str,
    matching(
        r"[A-Za-z0-9_-]{1,100}(\.[a-z0-9-]{1,50}){0,2}",
        "account identifier",
        'write it as "myorg-myaccount", without .snowflakecomputing.com',
    ),
]
IamUserArn = Annotated[
    str,
    _arn(
        r"iam::[0-9]{12}:user/[A-Za-z0-9+=,.@_/-]+",
        "an IAM user",
        "arn:aws:iam::ACCOUNT:user/NAME, as DESC EXTERNAL VOLUME says",
    ),
]

Email = Annotated[str, matching(_EMAIL, "e-mail address", 'write it as "name@example.com"')]
Emails = Annotated[list[Email], _distinct(str.lower, _TWICE)]
ExportName = Annotated[str, _name("export name")]
Delimiter = Annotated[str, AfterValidator(_delimiter)]
