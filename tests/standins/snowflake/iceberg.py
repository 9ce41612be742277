"""Volumes, integrations, tables and linked databases: what of an account has to do with the lake."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.standins.snowflake.grammar import Name
from tests.standins.snowflake.reach import IAM_USER, OutOfReach, Reach
from tests.standins.snowflake.refusals import Refusal, absent
from tests.standins.snowflake.rights import ADMIN, Object, Rights


@dataclass(slots=True)
class Iceberg:
    """stalled: tables whose automated refresh has stopped, and why; one that is refreshed by hand begins anew."""

    rights: Rights
    reach: Reach
    stalled: dict[Name, str] = field(default_factory=dict)

    def verify_volume(self, volume: Object) -> dict[str, Any]:
        location = volume.options["STORAGE_LOCATIONS"][0]
        try:
            self.reach.volume(location)
        except OutOfReach as error:
            return {"success": False, "storageLocationSelectionResult": "FAILED", "message": str(error)}
        skipped = {"writeResult": "SKIPPED", "deleteResult": "SKIPPED"}
        passed = {"readResult": "PASSED", "listResult": "PASSED", "awsRoleArnValidationResult": "PASSED"}
        return {"success": True, "storageLocationSelectionResult": "PASSED", **skipped, **passed}

    def verify_integration(self, integration: Object) -> dict[str, Any]:
        try:
            self._reach_catalog(integration)
        except OutOfReach as error:
            return {"success": False, "errorCode": "004155", "errorMessage": str(error)}
        return {"success": True, "errorCode": "", "errorMessage": ""}

    def create(self, role: str, name: Name, options: dict[str, Any]) -> Object:
        """A table, at what its catalog has now. Raises: Refusal."""
        volume = self.rights.need(role, "USAGE", "EXTERNAL VOLUME", (options["EXTERNAL_VOLUME"],))
        integration = self.rights.need(role, "USAGE", "CATALOG INTEGRATION", (options["CATALOG"],))
        try:
            self.reach.volume(volume.options["STORAGE_LOCATIONS"][0])
        except OutOfReach as error:
            raise Refusal(f"SQL execution error: {error}", "091313") from None
        made = Object("ICEBERG TABLE", name, role, {"AUTO_REFRESH": False, **options})
        self._read(made, integration)
        return made

    def refresh(self, table: Object) -> None:
        """Raises: Refusal: automated refresh is on, or the catalog has no such table any more."""
        if table.options["AUTO_REFRESH"]:
            raise Refusal("Manual refresh is not allowed while AUTO_REFRESH is enabled.", "091380")
        self._read(table, self._integration(table))

    def refresh_by_itself(self) -> None:
        """What Snowflake does every REFRESH_INTERVAL_SECONDS."""
        for each in self.rights.objects.values():
            if (
                each.kind == "ICEBERG TABLE"
                and each.options["AUTO_REFRESH"]
                and each.name not in self.stalled
            ):
                self._read(each, self._integration(each))

    def set(self, table: Object, options: dict[str, Any]) -> None:
        """Options of a table; automated refresh that is switched on begins anew."""
        table.options |= options
        if options.get("AUTO_REFRESH"):
            self.stalled.pop(table.name, None)

    def status(self, table: Object) -> dict[str, Any]:
        """Of a table's automated refresh."""
        why = self.stalled.get(table.name)
        on = table.options["AUTO_REFRESH"]
        return {
            "executionState": "STALLED" if why else "RUNNING" if on else "STOPPED",
            "invalidExecutionStateReason": why or "",
            "pendingSnapshotCount": "0",
            "currentMetadataFile": table.facts["metadata"],
        }

    def follow_catalogs(self) -> None:
        """Linked databases get the schemas and tables of their catalog, and their newest state."""
        linked = [
            each
            for each in self.rights.objects.values()
            if each.kind == "DATABASE" and "LINKED_CATALOG" in each.options
        ]
        for database in linked:
            for namespace in database.options["LINKED_CATALOG"]["ALLOWED_NAMESPACES"]:
                with suppress(Refusal):  # what cannot be reached is found at another time
                    self._follow(database, namespace)

    def _follow(self, database: Object, namespace: str) -> None:
        schema = (*database.name, namespace)
        if ("SCHEMA", schema) not in self.rights.objects:
            self.rights.add(Object("SCHEMA", schema, database.owner, {}))
        for table in self.reach.tables(namespace):
            known = self.rights.objects.get(("ICEBERG TABLE", (*schema, table)))
            if known is None:
                catalog = database.options["LINKED_CATALOG"]["CATALOG"]
                named = {"CATALOG": catalog, "CATALOG_NAMESPACE": namespace, "CATALOG_TABLE_NAME": table}
                volume = {"EXTERNAL_VOLUME": database.options["EXTERNAL_VOLUME"], "AUTO_REFRESH": True}
                known = Object("ICEBERG TABLE", (*schema, table), ADMIN, named | volume)
                self.rights.add(known)
            self._read(known, self._integration(known))

    def _integration(self, table: Object) -> Object:
        return self.rights.objects["CATALOG INTEGRATION", (table.options["CATALOG"],)]

    def _reach_catalog(self, integration: Object) -> str:
        """Where the tables are, by default."""
        options = integration.options
        namespace = str(options.get("CATALOG_NAMESPACE", ""))
        role, external_id = integration.facts.get("role"), integration.facts.get("external_id", "")
        if role:
            self.reach.catalog(role, external_id, namespace)
        return namespace

    def _read(self, table: Object, integration: Object) -> None:
        try:
            namespace = table.options.get("CATALOG_NAMESPACE") or self._reach_catalog(integration)
            self._reach_catalog(integration)
        except OutOfReach as error:
            raise Refusal(f"SQL execution error: {error}", "091304") from None
        metadata = self.reach.metadata(namespace, table.options["CATALOG_TABLE_NAME"])
        if metadata is None:
            raise absent("Iceberg table in the catalog", (namespace, table.options["CATALOG_TABLE_NAME"]))
        volume = self.rights.objects["EXTERNAL VOLUME", (table.options["EXTERNAL_VOLUME"],)]
        if not metadata.startswith(volume.options["STORAGE_LOCATIONS"][0]["STORAGE_BASE_URL"]):
            raise Refusal(f"SQL execution error: {metadata} is outside of the external volume.", "091306")
        table.facts["metadata"] = metadata


def principal(kind: str, options: dict[str, Any]) -> dict[str, str]:
    """The role that an integration takes, and the external id that it shows; Snowflake makes one where none is chosen."""
    if kind != "CATALOG INTEGRATION":
        return {}
    if "GLUE_AWS_ROLE_ARN" in options:
        return {"role": options["GLUE_AWS_ROLE_ARN"], "external_id": "ABC12345_SFCRole=2_made/by+Snowflake="}
    rest = options.get("REST_AUTHENTICATION", {})
    if "SIGV4_IAM_ROLE" in rest:
        return {
            "role": rest["SIGV4_IAM_ROLE"],
            "external_id": rest.get("SIGV4_EXTERNAL_ID", "ABC12345_SFCRole=2_made/by+Snowflake="),
        }
    return {}


def described(each: Object) -> dict[str, str]:
    """What `DESC` says of a volume or an integration."""
    if each.kind == "EXTERNAL VOLUME":
        location = {**each.options["STORAGE_LOCATIONS"][0], "STORAGE_AWS_IAM_USER_ARN": IAM_USER}
        return {"ALLOW_WRITES": str(each.options["ALLOW_WRITES"]), "STORAGE_LOCATION_1": json.dumps(location)}
    said = {key: str(value) for key, value in each.options.items() if not isinstance(value, dict)}
    if each.facts:
        prefix = "GLUE" if "GLUE_AWS_ROLE_ARN" in each.options else "API"
        said[f"{prefix}_AWS_IAM_USER_ARN"] = IAM_USER
        said[f"{prefix}_AWS_EXTERNAL_ID"] = each.facts["external_id"]
    return said
