"""The AWS Glue Schema Registry: a schema's name is the subject, a version's UUID is the id.

Only `GetSchema`, `GetSchemaVersion` and `ListSchemas` are called. boto3 finds credentials, endpoint and proxy as usual.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any
from uuid import UUID

from calve.config.job import PartName
from calve.errors import Fatal, Retryable
from calve.schema.wire import GLUE, Schema, Wire
from calve.secrets import DENIED

READABLE = {"AVAILABLE", "DELETING"}


class GlueRegistry:
    """`calve.registry.registry.Registry` with the API of AWS."""

    wire: Wire = GLUE

    def __init__(self, name: str, region: str) -> None:
        self._name = name
        self._region = region
        self._client: Any = None
        self._by_id: dict[int, tuple[Schema, str]] = {}
        self._versions: dict[tuple[str, int], int | None] = {}
        self._lock = threading.RLock()

    def default_subject(self, topic: str, part: PartName = "value") -> str:
        """AWS's serializers do not distinguish keys and values, so tables must name the schemas of keys."""
        return topic

    def by_id(self, schema_id: int) -> Schema | None:
        found = self._look_up(schema_id)
        return found[0] if found else None

    def versions(self, subject: str) -> list[Schema]:
        schema = self._ask("get_schema", SchemaId=self._schema_id(subject))
        newest = int(schema["LatestSchemaVersion"]) if schema else 0
        return [found for number in range(1, newest + 1) if (found := self._version(subject, number))]

    def subjects(self) -> list[str]:
        names: list[str] = []
        page: dict[str, Any] = {}
        while True:
            found = self._ask("list_schemas", RegistryId={"RegistryName": self._name}, **page) or {}
            names += [each["SchemaName"] for each in found.get("Schemas", ())]
            if not found.get("NextToken"):
                return sorted(names)
            page = {"NextToken": found["NextToken"]}

    def subjects_of(self, schema_id: int) -> list[str]:
        found = self._look_up(schema_id)
        return [found[1]] if found else []

    def real_name(self, subject: str) -> str:
        return subject

    def forget(self, subject: str) -> None:
        with self._lock:
            for key in [key for key in self._versions if key[0] == subject]:
                del self._versions[key]

    def _look_up(self, schema_id: int) -> tuple[Schema, str] | None:
        """A schema and its name. A version id may also belong to another registry, whose schemas are ignored."""
        if schema_id not in self._by_id:
            found = self._ask("get_schema_version", SchemaVersionId=str(UUID(int=schema_id)))
            if found is None or found["Status"] not in READABLE:
                return None
            _, registry, name = found["SchemaArn"].rsplit("/", 2)
            if registry != self._name:
                return None
            self._keep(found, name)
        return self._by_id[schema_id]

    def _version(self, subject: str, number: int) -> Schema | None:
        """A version by its number. Numbers are not reused, so an absent one was deleted, or never became a version."""
        if (subject, number) not in self._versions:
            found = self._ask(
                "get_schema_version",
                SchemaId=self._schema_id(subject),
                SchemaVersionNumber={"VersionNumber": number},
            )
            if found is not None and found["Status"] == "PENDING":
                return None
            usable = found is not None and found["Status"] in READABLE
            with self._lock:
                self._versions[subject, number] = self._keep(found, subject).id if usable else None
        known = self._versions[subject, number]
        return None if known is None else self._by_id[known][0]

    def _keep(self, found: Any, name: str) -> Schema:
        schema = Schema(
            UUID(found["SchemaVersionId"]).int,
            found["SchemaDefinition"],
            found["DataFormat"],
            version=int(found["VersionNumber"]),
            registered=datetime.fromisoformat(found["CreatedTime"]).timestamp(),
        )
        with self._lock:
            return self._by_id.setdefault(schema.id, (schema, name))[0]

    def _schema_id(self, subject: str) -> dict[str, str]:
        return {"RegistryName": self._name, "SchemaName": subject}

    def _ask(self, operation: str, **arguments: Any) -> Any:
        """The answer of AWS; None if there is none."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

        where = f"the AWS Glue Schema Registry in {self._region}"
        try:
            return getattr(self._opened(), operation)(**arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "EntityNotFoundException":
                return None
            if code in DENIED:
                raise Fatal(
                    f"{where} refused to be read: {code}",
                    fix=f"allow glue:GetSchema and glue:ListSchemas on registry {self._name} and its schemas, and"
                    " glue:GetSchemaVersion on *",
                ) from None
            raise Retryable(f"{where} did not answer: {code}") from None
        except (NoCredentialsError, NoRegionError) as error:
            raise Fatal(f"{where} cannot be read: {error}") from None
        except BotoCoreError as error:
            raise Retryable(f"{where} did not answer: {type(error).__name__}") from None

    def _opened(self) -> Any:
        import boto3
        from botocore.config import Config

        with self._lock:
            if self._client is None:
                limits = Config(
                    connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3}
                )
                self._client = boto3.client("glue", region_name=self._region, config=limits)
            return self._client
