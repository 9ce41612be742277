"""Which options each kind of object has, which of them it needs, and what each may be; everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.standins.snowflake.grammar import Word
from tests.standins.snowflake.refusals import Refusal

Check = Callable[[Any], bool]
Shape = Mapping[str, Check]


def _matching(pattern: str) -> Check:
    return lambda value: (
        isinstance(value, str) and not isinstance(value, Word) and re.fullmatch(pattern, value) is not None
    )


def _word(*words: str) -> Check:
    return lambda value: isinstance(value, str) and value.upper() in words


def _number(least: int, most: int) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(_text(each) for each in value)


def _mapping(shape: Shape, *needed: str) -> Check:
    return lambda value: isinstance(value, dict) and not _problem(value, shape, needed)


_text = _matching(r"(?s).+")
_role = _matching(r"arn:aws:iam::[0-9]{12}:role/\S+")
_secret = _matching(r"\S{2,1224}")  # an external id: 2 to 1224 characters
_key = _matching(r"[A-Za-z0-9+/=]{300,}")
COMMENT = {"COMMENT": _text}
REFRESH = {"REFRESH_INTERVAL_SECONDS": _number(30, 86_400)}
SIZES = ("XSMALL", "SMALL", "MEDIUM", "LARGE", "XLARGE")
LOCATION = {
    "NAME": _text,
    "STORAGE_PROVIDER": _word("S3"),
    "STORAGE_BASE_URL": _matching(r"s3://[^/\s]+/(\S*/)?"),
    "STORAGE_AWS_ROLE_ARN": _role,
    "STORAGE_AWS_EXTERNAL_ID": _secret,
}
INTEGRATION: Shape = {
    "CATALOG_SOURCE": _word("ICEBERG_REST", "GLUE", "POLARIS"),
    "TABLE_FORMAT": _word("ICEBERG"),
    "ENABLED": _flag,
    "CATALOG_NAMESPACE": _text,
    **REFRESH,
    **COMMENT,
}
_uri = _matching(r"https://\S+")
GLUE: Shape = {"GLUE_AWS_ROLE_ARN": _role, "GLUE_CATALOG_ID": _matching(r"\d{12}"), "GLUE_REGION": _text}
AWS_REST: Shape = {
    "CATALOG_URI": _matching(r"https://glue\.[a-z0-9-]+\.amazonaws\.com/iceberg"),
    "CATALOG_API_TYPE": _word("AWS_GLUE"),
    "CATALOG_NAME": _matching(r"\d{12}"),
}
SIGV4: Shape = {
    "TYPE": _word("SIGV4"),
    "SIGV4_IAM_ROLE": _role,
    "SIGV4_SIGNING_REGION": _text,
    "SIGV4_EXTERNAL_ID": _secret,
}
OAUTH: Shape = {
    "TYPE": _word("OAUTH"),
    "OAUTH_CLIENT_ID": _text,
    "OAUTH_CLIENT_SECRET": _text,
    "OAUTH_ALLOWED_SCOPES": _texts,
}
POLARIS: Shape = {"CATALOG_URI": _uri, "CATALOG_NAME": _text}
LINKED: Shape = {
    "CATALOG": _text,
    "ALLOWED_NAMESPACES": _texts,
    "ALLOWED_WRITE_OPERATIONS": _word("NONE"),
    "SYNC_INTERVAL_SECONDS": _number(30, 86_400),
}
OF_SOURCE: Mapping[str, Shape] = {
    "GLUE": GLUE,
    "ICEBERG_REST": {
        "REST_CONFIG": _mapping(AWS_REST, *AWS_REST),
        "REST_AUTHENTICATION": _mapping(SIGV4, "TYPE", "SIGV4_IAM_ROLE", "SIGV4_SIGNING_REGION"),
    },
    "POLARIS": {
        "REST_CONFIG": _mapping(POLARIS, *POLARIS),
        "REST_AUTHENTICATION": _mapping(OAUTH, *OAUTH),
    },
}
CREATED: Mapping[str, tuple[Shape, tuple[str, ...]]] = {
    "WAREHOUSE": (
        {
            "WAREHOUSE_SIZE": _word(*SIZES),
            "AUTO_SUSPEND": _number(0, 86_400),
            "AUTO_RESUME": _flag,
            "INITIALLY_SUSPENDED": _flag,
            **COMMENT,
        },
        (),
    ),
    "ROLE": (COMMENT, ()),
    "USER": (
        {
            "TYPE": _word("SERVICE"),
            "DEFAULT_ROLE": _text,
            "RSA_PUBLIC_KEY": _key,
            "RSA_PUBLIC_KEY_2": _key,
            **COMMENT,
        },
        (),
    ),
    "EXTERNAL VOLUME": (
        {
            "STORAGE_LOCATIONS": lambda value: (
                isinstance(value, list) and all(map(_mapping(LOCATION, *list(LOCATION)[:4]), value))
            ),
            "ALLOW_WRITES": _flag,
            **COMMENT,
        },
        ("STORAGE_LOCATIONS",),
    ),
    "DATABASE": (
        {
            "LINKED_CATALOG": _mapping(LINKED, "CATALOG"),
            "EXTERNAL_VOLUME": _text,
            "CATALOG_CASE_SENSITIVITY": _word("CASE_SENSITIVE", "CASE_INSENSITIVE"),
            **COMMENT,
        },
        (),
    ),
    "SCHEMA": (COMMENT, ()),
    "ICEBERG TABLE": (
        {
            "EXTERNAL_VOLUME": _text,
            "CATALOG": _text,
            "CATALOG_TABLE_NAME": _text,
            "CATALOG_NAMESPACE": _text,
            "AUTO_REFRESH": _flag,
            **COMMENT,
        },
        ("EXTERNAL_VOLUME", "CATALOG", "CATALOG_TABLE_NAME"),
    ),
}
ALTERED: Mapping[str, Shape] = {
    "WAREHOUSE": {"WAREHOUSE_SIZE": _word(*SIZES), "AUTO_SUSPEND": _number(0, 86_400)},
    "USER": {"DEFAULT_ROLE": _text, "RSA_PUBLIC_KEY": _key, "RSA_PUBLIC_KEY_2": _key},
    "CATALOG INTEGRATION": {**REFRESH, "ENABLED": _flag},
    "ICEBERG TABLE": {"AUTO_REFRESH": _flag},
}


def check_created(kind: str, options: Mapping[str, Any]) -> None:
    """Raises: Refusal: an option is unknown, missing or of no use."""
    if kind == "CATALOG INTEGRATION":
        source = OF_SOURCE.get(str(options.get("CATALOG_SOURCE", "")).upper(), {})
        _check(options, {**INTEGRATION, **source}, ("CATALOG_SOURCE", "TABLE_FORMAT", "ENABLED", *source))
    elif kind in CREATED:
        _check(options, *CREATED[kind])
    else:
        raise Refusal(f"SQL compilation error: {kind} cannot be made.")


def check_altered(kind: str, options: Mapping[str, Any]) -> None:
    """Raises: as `check_created`."""
    if not options:
        raise Refusal("SQL compilation error: nothing to set.")
    _check(options, ALTERED.get(kind, {}), ())


def _check(options: Mapping[str, Any], shape: Shape, needed: tuple[str, ...]) -> None:
    if problem := _problem(options, shape, needed):
        raise Refusal(f"SQL compilation error:\n{problem}", "001006")


def _problem(options: Mapping[str, Any], shape: Shape, needed: tuple[str, ...]) -> str | None:
    for key in needed:
        if key not in options:
            return f"missing option(s): [{key}]."
    for key, value in options.items():
        if key not in shape:
            return f"invalid property '{key}'."
        if not shape[key](value):
            return f"invalid value [{value!r}] for parameter '{key}'."
    return None
