"""Snowflake's SQL as text: names are quoted, values escaped. All statements with values are made here.

Statements can be repeated. They use `IF NOT EXISTS`, because `OR REPLACE` would change the ids by which AWS knows Snowflake. The
comment of every created object marks the deployment, so a delete can recognize its own objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calve.config.publishing import Snowflake
from calve.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$-]{0,254}")


class Word(str):
    """A keyword of Snowflake, without quotes."""

    __slots__ = ()


def name(*parts: str) -> str:
    """A name of one or more parts. Raises ConfigError: a part is not a valid name."""
    for part in parts:
        if not NAME.fullmatch(part):
            raise ConfigError(f'"{part}" is no name for Snowflake', fix="use letters, digits, _, $ and -")
    return ".".join(f'"{part}"' for part in parts)


def text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def options(values: Mapping[str, object], separator: str = " ") -> str:
    """`KEY = value` of each; a mapping becomes `(KEY = value ...)`, a list `(a, b)`."""
    return separator.join(f"{key} = {_value(value)}" for key, value in values.items())


def call(function: str, *arguments: str) -> str:
    """A SELECT of one system function."""
    return f"SELECT {function}({', '.join(map(text, arguments))}) AS ANSWER"


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case int() | Word():
            return str(value)
        case str():
            return text(value)
        case Mapping():
            return f"({options(value)})"
        case Sequence():
            return f"({', '.join(map(_value, value))})"
    raise TypeError(f"{type(value).__name__} is no value of an option")


SYSADMIN = "SYSADMIN"
LOCATION = "lake"


@dataclass(frozen=True, slots=True)
class Lake:
    """What Snowflake reads: `location`: the S3 URI of all tables, with a trailing slash; the roles are ARNs.

    database: of all tables; empty if each cluster has its own.
    external_id: how AWS recognizes this deployment's requests from Snowflake.
    client_id, client_secret: of Open Catalog, if that is the catalog.
    """

    location: str
    region: str
    account: str
    database: str
    volume_role: str
    catalog_role: str = ""
    external_id: str = ""
    client_id: str = ""
    client_secret: str = ""


@dataclass(frozen=True, slots=True)
class Object:
    """One object of an account.

    parts: of its name. fixed, variable: its options; the variable ones can be changed later.
    own: an existing object of another owner may not be used instead.
    """

    kind: str
    parts: tuple[str, ...]
    fixed: str = ""
    variable: str = ""
    own: bool = False

    @property
    def name(self) -> str:
        return name(*self.parts)

    @property
    def create(self) -> str:
        words = (f"CREATE {self.kind} IF NOT EXISTS", self.name, self.fixed, self.variable)
        return " ".join(filter(None, words))

    @property
    def alter(self) -> str:
        """Set the variable options, if any."""
        return f"ALTER {self.kind} {self.name} SET {self.variable}"

    @property
    def show(self) -> str:
        """List it with its comment; the pattern may also match others."""
        within = f" IN DATABASE {name(self.parts[0])}" if self.kind == "SCHEMA" else ""
        return f"SHOW {self.kind}S LIKE {text(self.parts[-1])}{within}"

    @property
    def drop(self) -> str:
        return f"DROP {self.kind} IF EXISTS {self.name}"


def mark(deployment: str) -> str:
    """The comment on everything that a deployment created."""
    return f"calve:{deployment}"


def objects(config: Snowflake, deployment: str, lake: Lake) -> Iterator[Object]:
    """All objects but tables, each after the objects that it needs."""
    comment = {"COMMENT": mark(deployment)}
    if warehouse := config.warehouse:
        born = {"AUTO_RESUME": True, "INITIALLY_SUSPENDED": True, **comment}
        size = {"WAREHOUSE_SIZE": Word(warehouse.size), "AUTO_SUSPEND": warehouse.auto_suspend_s}
        yield Object("WAREHOUSE", (warehouse.name,), options(born), options(size))
    yield Object("ROLE", (config.reader,), options(comment))
    yield Object("ROLE", (config.publisher,), options(comment), own=True)
    user = options({"TYPE": Word("SERVICE"), **comment})
    role = options({"DEFAULT_ROLE": config.publisher})
    yield Object("USER", (config.service_user,), user, role, own=True)
    location = {
        "NAME": LOCATION,
        "STORAGE_PROVIDER": "S3",
        "STORAGE_BASE_URL": lake.location,
        "STORAGE_AWS_ROLE_ARN": lake.volume_role,
        "STORAGE_AWS_EXTERNAL_ID": lake.external_id,
    }
    volume = {"STORAGE_LOCATIONS": [location], "ALLOW_WRITES": False, **comment}
    yield Object("EXTERNAL VOLUME", (config.volume,), options(volume), own=True)
    catalog = {**_catalog(config, lake), "TABLE_FORMAT": Word("ICEBERG"), "ENABLED": True, **comment}
    refresh = options({"REFRESH_INTERVAL_SECONDS": config.refresh_s})
    yield Object("CATALOG INTEGRATION", (config.integration,), options(catalog), refresh, own=True)
    if not config.linked:
        yield Object("DATABASE", (config.database,), options(comment))
        yield Object("SCHEMA", (config.database, config.schema), options(comment))
        return
    followed = {
        "CATALOG": config.integration,
        "ALLOWED_NAMESPACES": [lake.database],
        "ALLOWED_WRITE_OPERATIONS": Word("NONE"),
        "SYNC_INTERVAL_SECONDS": config.refresh_s,
    }
    linked = {
        "LINKED_CATALOG": Word(f"({options(followed, ', ')})"),
        "EXTERNAL_VOLUME": config.volume,
        "CATALOG_CASE_SENSITIVITY": Word("CASE_INSENSITIVE"),
        **comment,
    }
    yield Object("DATABASE", (config.database,), options(linked), own=True)


def grants(config: Snowflake) -> Iterator[str]:
    """Rights: readers read; the service user creates and refreshes tables."""
    reader, publisher = name(config.reader), name(config.publisher)
    user, database = name(config.service_user), name(config.database)
    for role in (reader, publisher):
        yield f"GRANT ROLE {role} TO ROLE {name(SYSADMIN)}"
        yield f"GRANT USAGE ON DATABASE {database} TO ROLE {role}"
    yield f"GRANT ROLE {publisher} TO USER {user}"
    yield f"GRANT MODIFY PROGRAMMATIC AUTHENTICATION METHODS ON USER {user} TO ROLE {publisher}"
    yield f"GRANT USAGE ON EXTERNAL VOLUME {name(config.volume)} TO ROLE {publisher}"
    yield f"GRANT USAGE ON INTEGRATION {name(config.integration)} TO ROLE {publisher}"
    if config.warehouse:
        yield f"GRANT USAGE ON WAREHOUSE {name(config.warehouse.name)} TO ROLE {reader}"
    schema = name(config.database, config.schema)
    if not config.linked:
        for role in (reader, publisher):
            yield f"GRANT USAGE ON SCHEMA {schema} TO ROLE {role}"
        yield f"GRANT CREATE ICEBERG TABLE ON SCHEMA {schema} TO ROLE {publisher}"
    for which in ("ALL", "FUTURE"):
        if not config.linked:
            yield f"GRANT SELECT ON {which} ICEBERG TABLES IN SCHEMA {schema} TO ROLE {reader}"
            continue
        for role in (reader, publisher):
            yield f"GRANT USAGE ON {which} SCHEMAS IN DATABASE {database} TO ROLE {role}"
            yield f"GRANT SELECT ON {which} ICEBERG TABLES IN DATABASE {database} TO ROLE {role}"


def _catalog(config: Snowflake, lake: Lake) -> dict[str, object]:
    if config.open_catalog:
        return {
            "CATALOG_SOURCE": Word("POLARIS"),
            "REST_CONFIG": {
                "CATALOG_URI": config.open_catalog.uri,
                "CATALOG_NAME": config.open_catalog.warehouse,
            },
            "REST_AUTHENTICATION": {
                "TYPE": Word("OAUTH"),
                "OAUTH_CLIENT_ID": lake.client_id,
                "OAUTH_CLIENT_SECRET": lake.client_secret,
                "OAUTH_ALLOWED_SCOPES": ["PRINCIPAL_ROLE:ALL"],
            },
        }
    namespace = {"CATALOG_NAMESPACE": lake.database} if lake.database else {}
    if config.catalog == "glue":
        return {
            "CATALOG_SOURCE": Word("GLUE"),
            **namespace,
            "GLUE_AWS_ROLE_ARN": lake.catalog_role,
            "GLUE_CATALOG_ID": lake.account,
            "GLUE_REGION": lake.region,
        }
    return {
        "CATALOG_SOURCE": Word("ICEBERG_REST"),
        **namespace,
        "REST_CONFIG": {
            "CATALOG_URI": f"https://glue.{lake.region}.amazonaws.com/iceberg",
            "CATALOG_API_TYPE": Word("AWS_GLUE"),
            "CATALOG_NAME": lake.account,
        },
        "REST_AUTHENTICATION": {
            "TYPE": Word("SIGV4"),
            "SIGV4_IAM_ROLE": lake.catalog_role,
            "SIGV4_SIGNING_REGION": lake.region,
            "SIGV4_EXTERNAL_ID": lake.external_id,
        },
    }
