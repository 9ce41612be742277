"""Types of single values of calve.yaml: what each may be, and what is said where it is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from calve.job import Start, Transform
from calve.names import DATABASE_NAME, field_problem, table_problem, topic_problem
from calve.settings import notation
from calve.settings.problems import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SECRET = re.compile(r"(env|file|aws):\S.*")
_URL = re.compile(r"https?://[^\s/?#]+[^\s?#]*")
_FOLDER = r"[A-Za-z0-9!_.*'()=-]+"


def _without(problem: Callable[[str], str | None]) -> AfterValidator:
    def check(text: str) -> str:
        if reason := problem(text):
            raise Invalid(reason)
        return text

    return AfterValidator(check)


def _matching(pattern: str | re.Pattern[str], what: str, fix: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise Invalid(f'"{text}" is no {what}', fix)
        return text

    return AfterValidator(check)


def _secret(reference: str) -> str:
    if not _SECRET.fullmatch(reference):  # not repeated in the message: it may be the secret itself
        fix = "use env:NAME, file:PATH or aws:SECRET_ID; the secret itself stays out of this file"
        raise Invalid("is no reference to a secret", fix)
    return reference


def _url(url: str) -> str:
    if "@" in url:
        raise Invalid(
            "must not hold a user or a password", "move them to `secret`, such as secret: env:REGISTRY"
        )
    if not _URL.fullmatch(url):
        raise Invalid(f'"{url}" is no URL', "write it as https://host:port")
    return url.rstrip("/")


def _servers(text: str) -> str:
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        match = _SERVER.fullmatch(server)
        if not match or not 0 < int(match[2]) < 65536:
            fix = "write host:port, several of them separated by commas"
            raise Invalid(f'"{server}" is no server', fix)
    return ",".join(servers)


Text = Annotated[str, Field(min_length=1)]
Deployment = Annotated[
    str, _matching(r"[a-z][a-z0-9-]{0,39}", "name", "use a-z, 0-9 and -, starting with a letter (at most 40)")
]
JobName = Annotated[
    str, _matching(r"[a-z][a-z0-9_-]{0,39}", "job name", "use a-z, 0-9, _ and -, starting with a letter")
]
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

TableKey = Annotated[str, _without(table_problem)]
Topic = Annotated[str, _without(topic_problem)]
FieldPath = Annotated[str, _without(field_problem)]
Duration = Annotated[float, BeforeValidator(notation.seconds)]
Size = Annotated[int, BeforeValidator(notation.size_bytes)]
StartingPoint = Annotated[Start, BeforeValidator(notation.start)]
Partitioning = Annotated[
    list[Annotated[Transform, BeforeValidator(notation.partition_field)]],
    AfterValidator(notation.distinct_partition_fields),
]
Sorting = Annotated[
    list[Annotated[Transform, BeforeValidator(notation.sort_field)]],
    AfterValidator(notation.distinct_sort_fields),
]
