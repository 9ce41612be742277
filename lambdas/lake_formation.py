"""Whether Lake Formation governs a database: then a right to the catalog in IAM needs a grant beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

EVERYBODY = "IAM_ALLOWED_PRINCIPALS"
"""The group of all that IAM admits. Where it has all rights, Lake Formation leaves the decision to IAM."""
REFUSAL = "Lake Formation"
"""Glue's refusals name it: "Insufficient Lake Formation permission(s): Required Describe on trading"."""
PAGE = "docs/before-a-deploy.md#lake-formation"

Entry = Mapping[str, Any]


def governs(formation: Any, glue: Any, database: str | None) -> bool:
    """Whether it governs a database, or, with None, those that will be made. `formation`, `glue`: clients.

    Lake Formation may show a caller fewer grants than there are, so an empty list says nothing.

    Raises:
        ClientError: its settings may not be read, or Glue does not know the database.
    """
    settings = formation.get_data_lake_settings()["DataLakeSettings"]
    databases = _leaves_to_iam(settings.get("CreateDatabaseDefaultPermissions", ()))
    tables = settings.get("CreateTableDefaultPermissions", ())
    if database:
        try:
            described = glue.get_database(Name=database)["Database"]
        except ClientError as error:
            if REFUSAL not in str(error):
                raise
            return True
        tables = described.get("CreateTableDefaultPermissions", tables)
        if granted := grants_on(formation, database):
            databases = _leaves_to_iam(granted)
    return not (databases and _leaves_to_iam(tables))


def grants_on(formation: Any, database: str) -> list[Entry]:
    """The grants on the database that the caller may see."""
    on = {"Database": {"Name": database}}
    return list(pages(formation.list_permissions, "PrincipalResourcePermissions", Resource=on))


def pages(ask: Callable[..., Any], listed: str, **request: Any) -> Iterator[Entry]:
    """All that a request lists; boto3 has no paginator for Lake Formation."""
    token: str | None = ""
    while token is not None:
        page = ask(**request, **({"NextToken": token} if token else {}))
        yield from page[listed]
        token = page.get("NextToken")


def principal_of(entry: Entry) -> str:
    return str(entry["Principal"]["DataLakePrincipalIdentifier"])


def _leaves_to_iam(entries: Iterable[Entry]) -> bool:
    return any(principal_of(each) == EVERYBODY and "ALL" in each["Permissions"] for each in entries)
