"""The base class of all sections of calve.yaml, and types of single values with their error messages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from calve.config.job import Start
from calve.config.publishing import Function
from calve.config.spark_conf import OWN_SETTINGS
from calve.config.topics import expression_problem, naming_problem
from calve.names import DATABASE_NAME, FIELD_NAME, field_problem, table_problem, topic_problem
from calve.schema.columns import Transform
from calve.settings import notation, schedules
from calve.settings.problems import Invalid, InvalidParts, Problem, one_of

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


FIELDS = {  # key in calve.yaml -> field of the resolved value, which names its unit
    "freshness": "freshness_s",
    "flush_size": "flush_bytes",
    "partition_flush_size": "partition_flush_bytes",
    "within": "within_s",
    "file_size": "file_bytes",
    "snapshots": "snapshots_s",
    "dead_letters": "dead_letters_s",
    "lag": "lag_records",
    "wait": "wait_s",
    "keep": "keep_days",
    "days": "link_days",
    "vpc": "vpc_id",
}


def resolved(kind: type[_T], *sections: Section | None, **more: Any) -> _T:
    """A value of a dataclass: `more`, else what the last of the sections says, else the dataclass' default."""
    known = {each.name for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    options: dict[str, Any] = {}
    for section in sections:
        for key, value in section or ():
            if value is not None and not isinstance(value, Section) and FIELDS.get(key, key) in known:
                options[FIELDS.get(key, key)] = tuple(value) if isinstance(value, list) else value
    return kind(**options | more)


_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SECRET = re.compile(r"(env|file|aws):\S.*")
_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^\s/?#:\[\]]+)(:[0-9]{1,5})?(/[^\s?#]*)?")
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_SPARK_KEY = re.compile(r"spark(\.[A-Za-z0-9_-]+)+")
_DELIMITERS = {",": "a comma", ";": "a semicolon", "|": "a bar", "\t": 'a tab ("\\t")'}
_FOLDER = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9!_.'()=-]+"  # no "*": in a policy it would match every folder


def _without(problem: Callable[[str], str | None]) -> AfterValidator:
    def check(text: str) -> str:
        if reason := problem(text):
            raise Invalid(reason)
        return text

    return AfterValidator(check)


def _matching(pattern: str | re.Pattern[str], what: str, fix: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise Invalid(f'"{text}" is not {"an" if what[0] in "aeA" else "a"} {what}', fix)
        return text

    return AfterValidator(check)


def _id(prefix: str, what: str) -> AfterValidator:
    return _matching(rf"{prefix}-[0-9a-f]+", what, f'write its id, such as "{prefix}-0123456789abcdef0"')


def _name(what: str) -> AfterValidator:
    return _matching(r"[a-z][a-z0-9_-]{0,39}", what, "use a-z, 0-9, _ and -, starting with a letter")


def _table_key(name: str) -> str | None:
    return naming_problem(name) if "{" in name else table_problem(name)


def _secret(reference: str) -> str:
    if not _SECRET.fullmatch(reference):  # not quoted in the message: it may be the secret itself
        fix = "use env:NAME, file:PATH or aws:SECRET_ID; the secret itself stays out of this file"
        raise Invalid("is not a reference to a secret", fix)
    return reference


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


Text = Annotated[str, Field(min_length=1)]
Filter = Annotated[str, AfterValidator(_filter)]
Deployment = Annotated[
    str, _matching(r"[a-z][a-z0-9-]{0,39}", "name", "use a-z, 0-9 and -, starting with a letter (at most 40)")
]
JobName = Annotated[str, _name("job name")]
Servers = Annotated[str, AfterValidator(_servers)]
Url = Annotated[str, AfterValidator(_url)]
Secret = Annotated[str, AfterValidator(_secret)]

Database = Annotated[str, _matching(DATABASE_NAME, "database name", "use a-z, 0-9, _ and -")]
Bucket = Annotated[
    str, _matching(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "bucket name", "use 3 to 63 of a-z, 0-9, - and .")
]
Prefix = Annotated[
    str, _matching(rf"{_FOLDER}(/{_FOLDER})*", "prefix", 'write it as "lake/raw", without / at its ends')
]
Region = Annotated[str, _matching(r"[a-z]{2}(-[a-z]+)+-\d", "region", 'write it as "eu-west-1"')]

TableKey = Annotated[str, _without(_table_key)]
Topic = Annotated[str, _without(topic_problem)]
Topics = Annotated[str, Field(min_length=1), _without(expression_problem)]
FieldPath = Annotated[str, _without(field_problem)]
ColumnName = Annotated[
    str,
    _matching(FIELD_NAME, "column name", "use letters, digits and _, starting with a letter or _"),
    _without(field_problem),
]
CountedValue = Annotated[str, _matching(r"[A-Za-z0-9_-]{1,64}", "value", "use letters, digits, _ and -")]
Duration = Annotated[float, BeforeValidator(notation.seconds)]
Size = Annotated[int, BeforeValidator(notation.size_bytes)]
Share = Annotated[float, BeforeValidator(notation.share)]
StartingPoint = Annotated[Start, BeforeValidator(notation.start)]
Partitioning = Annotated[
    list[Annotated[Transform, BeforeValidator(notation.partition_field)]],
    AfterValidator(notation.distinct_partition_fields),
]
Sorting = Annotated[
    list[Annotated[Transform, BeforeValidator(notation.sort_field)]],
    AfterValidator(notation.distinct_sort_fields),
]
Column = Annotated[str, BeforeValidator(notation.column)]
Columns = Annotated[list[Column], AfterValidator(notation.distinct_names)]
Measures = dict[ColumnName, Annotated[tuple[Function, str | None], BeforeValidator(notation.measure)]]

Schedule = Annotated[str, AfterValidator(schedules.expression)]
Run = Annotated[str, AfterValidator(schedules.run)]
TimeZone = Annotated[str, AfterValidator(schedules.time_zone)]
MaintenanceWindow = Annotated[str, AfterValidator(schedules.maintenance_window)]
Days = Annotated[int, BeforeValidator(_days)]

Worker = Literal["G.025X", "G.1X", "G.2X", "G.4X", "G.8X", "G.12X", "G.16X", "R.1X", "R.2X", "R.4X", "R.8X"]
SparkConf = dict[
    Annotated[str, AfterValidator(_spark_setting)], Annotated[str, BeforeValidator(_spark_value)]
]
ClusterArn = Annotated[
    str,
    _matching(
        r"arn:aws[a-z-]*:kafka:[a-z0-9-]+:[0-9]{12}:cluster/[^/\s]+/[^/\s]+",
        "ARN of an MSK cluster",
        "write it as arn:aws:kafka:REGION:ACCOUNT:cluster/NAME/UUID",
    ),
]
Vpc = Annotated[str, _id("vpc", "VPC")]
Subnet = Annotated[str, _id("subnet", "subnet")]
SecurityGroup = Annotated[str, _id("sg", "security group")]

RoleArn = Annotated[
    str,
    _matching(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+",
        "ARN of a role",
        "write it as arn:aws:iam::ACCOUNT:role/NAME",
    ),
]
Namespace = Annotated[
    str, _matching(r"[A-Za-z0-9_-]{1,200}", "namespace", "use letters, digits, - and _; one level")
]
SnowflakeName = Annotated[
    str,
    _matching(
        r"[A-Za-z_][A-Za-z0-9_$]{0,254}",
        "name for Snowflake",
        "use letters, digits, _ and $, starting with a letter or _",
    ),
]
SnowflakeAccount = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9_-]{1,100}(\.[a-z0-9-]{1,50}){0,2}",
        "account identifier",
        'write it as "myorg-myaccount", without .snowflakecomputing.com',
    ),
]
IamUserArn = Annotated[
    str,
    _matching(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:user/[A-Za-z0-9+=,.@_/-]+",
        "ARN of an IAM user",
        "write it as arn:aws:iam::ACCOUNT:user/NAME, as DESC EXTERNAL VOLUME says",
    ),
]

Email = Annotated[str, _matching(_EMAIL, "e-mail address", 'write it as "name@example.com"')]
Emails = Annotated[list[Email], AfterValidator(notation.distinct_names)]
ExportName = Annotated[str, _name("export name")]
Delimiter = Annotated[str, AfterValidator(_delimiter)]
