"""What the deployment tells the functions, and what they work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calve.config.publishing import IcebergRest
from calve.http_client import Tokens
from calve.secrets import read_secret, value_of
from lambdas.catalog_sync.catalog import Catalog, Notifications, Register
from lambdas.catalog_sync.server import Server
from lambdas.catalog_sync.sync import Sync
from lambdas.publish_states import PublishStates

SETTINGS = "publish.iceberg_rest.secret, token_url and scope"


def open_sync(
    settings: IcebergRest, *, deployment: str, states_table: str, client: Callable[[str], Any]
) -> Sync:
    """What keeps the catalog of these settings equal; `client` makes clients of AWS' services.

    Raises:
        ConfigError, Retryable: as `read_secret`.
    """
    tokens = tokens_of(settings, settings.secret, settings.scope) if settings.secret else None
    catalog = Catalog(Server(settings.uri, tokens), settings.warehouse)
    return Sync(
        glue=client("glue"),
        s3=client("s3"),
        catalog=catalog,
        writer=Register(catalog) if settings.update == "register" else Notifications(catalog),
        states=PublishStates(states_table, client("dynamodb")),
        deployment=deployment,
        namespace=settings.namespace,
    )


def tokens_of(settings: IcebergRest, secret: str, scope: str | None) -> Tokens:
    """Tokens for the client that a secret names.

    Raises:
        ConfigError, Retryable: as `read_secret`.
    """
    client = read_secret(secret)
    return Tokens(
        settings.token_url or f"{settings.uri}/v1/oauth/tokens",
        value_of(client, "client_id", secret),
        value_of(client, "client_secret", secret),
        scope=scope,
        settings=SETTINGS,
    )
