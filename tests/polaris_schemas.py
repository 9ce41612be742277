"""What requests to Polaris may hold, after its OpenAPI (`spec/` of apache/polaris); what that does not name is refused."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def closed(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "pattern": r"^(?!\s*[sS][yY][sS][tT][eE][mM]\$).*$",
}
WRITTEN = {"createTimestamp": NUMBER, "lastUpdateTimestamp": NUMBER, "entityVersion": NUMBER}
STORAGE = closed(
    ("storageType",),
    storageType={"enum": ["S3", "GCS", "AZURE", "FILE"]},
    allowedLocations={"type": "array", "items": TEXT},
    storageName=TEXT,
    roleArn=TEXT,
    externalId=TEXT,
    userArn=TEXT,
    region=TEXT,
    endpoint=TEXT,
)
CATALOG = closed(
    ("name", "type", "storageConfigInfo", "properties"),
    type={"enum": ["INTERNAL", "EXTERNAL"]},
    name=NAME,
    properties=TEXTS | {"required": ["default-base-location"]},
    storageConfigInfo=STORAGE,
    **WRITTEN,
)
PRINCIPAL = closed(("name",), name=NAME, clientId=TEXT, properties=TEXTS, **WRITTEN)
PRINCIPAL_ROLE = closed(("name",), name=NAME, federated={"type": "boolean"}, properties=TEXTS, **WRITTEN)
CATALOG_ROLE = closed(("name",), name=NAME, properties=TEXTS, **WRITTEN)
GRANT = closed(
    ("type", "privilege"),
    type={"enum": ["catalog"]},
    privilege={"enum": ["CATALOG_MANAGE_ACCESS", "CATALOG_MANAGE_CONTENT", "CATALOG_MANAGE_METADATA"]},
)

REQUESTS: dict[tuple[str, str], Schema | None] = {
    ("GET", "/catalogs/{catalog}"): None,
    ("DELETE", "/catalogs/{catalog}"): None,
    ("POST", "/catalogs"): closed(("catalog",), catalog=CATALOG),
    ("GET", "/principals/{principal}"): None,
    ("DELETE", "/principals/{principal}"): None,
    ("POST", "/principals"): closed(
        ("principal",), principal=PRINCIPAL, credentialRotationRequired={"type": "boolean"}
    ),
    ("PUT", "/principals/{principal}/principal-roles"): closed(
        ("principalRole",), principalRole=PRINCIPAL_ROLE
    ),
    ("GET", "/principal-roles/{principal_role}"): None,
    ("DELETE", "/principal-roles/{principal_role}"): None,
    ("POST", "/principal-roles"): closed(("principalRole",), principalRole=PRINCIPAL_ROLE),
    ("PUT", "/principal-roles/{principal_role}/catalog-roles/{catalog}"): closed(
        ("catalogRole",), catalogRole=CATALOG_ROLE
    ),
    ("GET", "/catalogs/{catalog}/catalog-roles/{catalog_role}"): None,
    ("DELETE", "/catalogs/{catalog}/catalog-roles/{catalog_role}"): None,
    ("POST", "/catalogs/{catalog}/catalog-roles"): closed(("catalogRole",), catalogRole=CATALOG_ROLE),
    ("PUT", "/catalogs/{catalog}/catalog-roles/{catalog_role}/grants"): closed(("grant",), grant=GRANT),
}
"""The body of each operation of the management API that is used; None: it has none."""

NOTIFICATION = closed(
    ("notification-type", "payload"),
    **{
        "notification-type": {"enum": ["UNKNOWN", "CREATE", "UPDATE", "DROP", "VALIDATE"]},
        "payload": closed(
            ("table-name", "timestamp", "table-uuid", "metadata-location"),
            **{
                "table-name": TEXT,
                "timestamp": NUMBER,
                "table-uuid": TEXT,
                "metadata-location": TEXT,
                "metadata": {"type": "object"},
            },
        ),
    },
)
NAMESPACE = closed(
    ("namespace",), namespace={"type": "array", "items": TEXT, "minItems": 1}, properties=TEXTS
)
