"""An account of Snowflake: does one statement at a time for a user in a role, or refuses it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.standins.snowflake.grammar import Name, Statement, parse
from tests.standins.snowflake.iceberg import Iceberg, described, principal
from tests.standins.snowflake.options import check_altered, check_created
from tests.standins.snowflake.reach import Reach
from tests.standins.snowflake.refusals import Refusal, absent, forbidden
from tests.standins.snowflake.rights import ADMIN, GRANTABLE, Object, Rights

SLOTS = ("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_2")
ACCOUNT_WIDE = {"WAREHOUSE", "ROLE", "USER", "EXTERNAL VOLUME", "CATALOG INTEGRATION", "DATABASE"}
INTEGRATIONS = {"INTEGRATION": "CATALOG INTEGRATION"}
Rows = list[dict[str, str]]


@dataclass
class Account:
    """One account. done: every statement that was done, in order, and who did it."""

    name: str
    reach: Reach
    rights: Rights = field(default_factory=Rights)
    done: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.iceberg = Iceberg(self.rights, self.reach)
        self._lock = threading.RLock()
        for role in ("SYSADMIN", ADMIN):
            self.rights.add(Object("ROLE", (role,), ADMIN, {}))

    def add_administrator(self, user: str, public_key: str) -> None:
        """A user that was there before: in base64, its key."""
        self.rights.add(Object("USER", (user,), ADMIN, {"RSA_PUBLIC_KEY": public_key}))
        self.rights.of_user[user] = {ADMIN}

    def public_keys(self, user: str) -> Mapping[str, str]:
        """Fingerprint -> key of a user that there is."""
        found = self.rights.objects.get(("USER", (user,)))
        keys = [found.options[slot] for slot in SLOTS if slot in found.options] if found else []
        return {fingerprint(key): key for key in keys}

    def execute(self, user: str, role: str, sql: str) -> Rows:
        """Do a statement.

        Raises:
            Refusal: it is not done.
        """
        with self._lock:
            statement = parse(sql)
            if role not in {each for held in self.rights.of_user[user] for each in self.rights.roles(held)}:
                raise Refusal(f"Role '{role}' specified in the request is not granted to {user}.", "390189")
            self.iceberg.follow_catalogs()
            rows = self._do(user, role, statement)
            self.done.append((user, sql))
            return rows

    def _do(self, user: str, role: str, statement: Statement) -> Rows:
        kind = INTEGRATIONS.get(statement.kind, statement.kind)
        match statement.verb:
            case "CREATE":
                return self._create(role, kind, statement)
            case "ALTER":
                return self._alter(user, role, kind, statement)
            case "REFRESH":
                self.iceberg.refresh(self.rights.owned(role, kind, statement.name))
                return _said("Statement executed successfully.")
            case "DROP":
                return self._drop(role, kind, statement.name)
            case "GRANT":
                return self._grant(role, kind, statement)
            case "GRANT ROLE":
                return self._grant_role(role, kind, statement)
            case "DESC":
                return self._describe(role, kind, statement.name)
            case "SHOW":
                return self._show(role, kind, statement)
            case _:
                return [{"ANSWER": self._function(user, role, statement)}]

    def _create(self, role: str, kind: str, statement: Statement) -> Rows:
        name, options = statement.name, statement.options
        check_created(kind, options)
        if len(name) != {"SCHEMA": 2, "ICEBERG TABLE": 3}.get(kind, 1):
            raise Refusal(f"SQL compilation error: {'.'.join(name)} is no full name of a {kind.lower()}.")
        if (kind, name) in self.rights.objects:
            return _said(f"{name[-1]} already exists, statement succeeded.")
        made = Object(kind, name, role, options, principal(kind, options))
        if kind in ACCOUNT_WIDE:
            if ADMIN not in self.rights.roles(role):
                raise forbidden("account", (self.name,))
            if linked := options.get("LINKED_CATALOG"):
                self.rights.need(role, "USAGE", "CATALOG INTEGRATION", (linked["CATALOG"],))
                self.rights.need(role, "USAGE", "EXTERNAL VOLUME", (options["EXTERNAL_VOLUME"],))
        elif kind == "SCHEMA":
            self.rights.owned(role, "DATABASE", name[:1])
        else:
            self.rights.need(role, "USAGE", "DATABASE", name[:1])
            self.rights.need(role, "CREATE ICEBERG TABLE", "SCHEMA", name[:2])
            made = self.iceberg.create(role, name, options)
        self.rights.add(made)
        if kind == "USER":
            self.rights.of_user[name[0]] = set()
        if kind == "ROLE":
            self.rights.inherits[name[0]] = set()
        if kind == "DATABASE" and "LINKED_CATALOG" not in options:
            self.rights.add(Object("SCHEMA", (*name, "PUBLIC"), role, {}))
        return _said(f"{kind.capitalize()} {name[-1]} successfully created.")

    def _alter(self, user: str, role: str, kind: str, statement: Statement) -> Rows:
        check_altered(kind, statement.options)
        if kind == "USER" and set(statement.options) <= set(SLOTS):
            each = self.rights.need(
                role, "MODIFY PROGRAMMATIC AUTHENTICATION METHODS", "USER", statement.name
            )
        else:
            each = self.rights.owned(role, kind, statement.name)
        if kind == "ICEBERG TABLE":
            self.iceberg.set(each, statement.options)
        else:
            each.options |= statement.options
        return _said("Statement executed successfully.")

    def _drop(self, role: str, kind: str, name: Name) -> Rows:
        if (kind, name) not in self.rights.objects:
            return _said(f"Drop statement executed successfully ({name[-1]} already dropped).")
        self.rights.owned(role, kind, name)
        for each in self.rights.objects.values():
            used = {each.options.get("CATALOG"), each.options.get("EXTERNAL_VOLUME")} | {
                each.options.get("LINKED_CATALOG", {}).get("CATALOG")
            }
            if kind in ("EXTERNAL VOLUME", "CATALOG INTEGRATION") and name[0] in used:
                message = f"{kind.capitalize()} {name[0]} cannot be dropped: {'.'.join(each.name)} uses it."
                raise Refusal(message, "003554")
        self.rights.drop(kind, name)
        return _said(f"{name[-1]} successfully dropped.")

    def _grant(self, role: str, kind: str, statement: Statement) -> Rows:
        (to,) = statement.to
        self._role(to)
        if statement.many:
            container = INTEGRATIONS.get(statement.within, statement.within)
            self.rights.owned(role, container, statement.name)
        else:
            if statement.privilege not in GRANTABLE.get(kind, ()):
                raise Refusal(f"SQL compilation error: no {statement.privilege} on {kind}.", "003008")
            self.rights.owned(role, kind, statement.name)
        right = (statement.privilege, kind, statement.name, to)
        if statement.many == "FUTURE":
            self.rights.future.add(right)
        elif statement.many:
            inside = [
                each
                for each in self.rights.objects.values()
                if each.kind == kind and each.name[: len(statement.name)] == statement.name
            ]
            self.rights.granted |= {(statement.privilege, kind, each.name, to) for each in inside}
        else:
            self.rights.granted.add(right)
        return _said("Statement executed successfully.")

    def _grant_role(self, role: str, kind: str, statement: Statement) -> Rows:
        self._role(statement.name[0])
        self.rights.owned(role, "ROLE", statement.name)
        held = self.rights.of_user if kind == "USER" else self.rights.inherits
        if statement.to[0] not in held:
            raise absent(kind, statement.to)
        held[statement.to[0]].add(statement.name[0])
        return _said("Statement executed successfully.")

    def _describe(self, role: str, kind: str, name: Name) -> Rows:
        each = self.rights.need(role, "ANY", kind, name)
        if kind == "USER":
            said = {"NAME": name[0], "DEFAULT_ROLE": str(each.options.get("DEFAULT_ROLE", "null"))}
            for slot in SLOTS:
                said[f"{slot}_FP"] = fingerprint(each.options[slot]) if slot in each.options else "null"
            return [{"property": key, "value": value} for key, value in said.items()]
        return [
            {"property": key, "property_type": "String", "property_value": value}
            for key, value in described(each).items()
        ]

    def _show(self, role: str, kind: str, statement: Statement) -> Rows:
        if statement.within:
            self.rights.need(role, "USAGE", statement.within, statement.name)
        if kind == "OBJECTS":
            return self._objects(statement)
        # As SQL does it: any one character for _, any number of them for %.
        like = re.escape(statement.options.get("LIKE", "%")).replace("%", ".*").replace("_", ".")
        return [
            {
                "name": each.name[-1],
                "comment": str(each.options.get("COMMENT", "")),
                "owner": each.owner,
                "catalog_name": str(each.options.get("CATALOG", "")),
            }
            for each in self.rights.objects.values()
            if each.kind == kind
            and each.name[: len(statement.name)] == statement.name
            and re.fullmatch(like, each.name[-1], re.IGNORECASE)
            and self.rights.has(role, "ANY", each.kind, each.name)
        ]

    def _objects(self, statement: Statement) -> Rows:
        """Tables and views; every database has views that tell of itself."""
        own = [{"name": "TABLES", "schema_name": "INFORMATION_SCHEMA"}] if len(statement.name) == 1 else []
        return own + [
            {"name": each.name[-1], "schema_name": each.name[1]}
            for each in self.rights.objects.values()
            if each.kind == "ICEBERG TABLE" and each.name[: len(statement.name)] == statement.name
        ]

    def _function(self, user: str, role: str, statement: Statement) -> str:
        match statement.kind, statement.name:
            case "CURRENT_USER", ():
                return user
            case "SYSTEM$VERIFY_EXTERNAL_VOLUME", (volume,):
                found = self.rights.need(role, "USAGE", "EXTERNAL VOLUME", (volume,))
                return json.dumps(self.iceberg.verify_volume(found))
            case "SYSTEM$VERIFY_CATALOG_INTEGRATION", (integration,):
                found = self.rights.need(role, "USAGE", "CATALOG INTEGRATION", (integration,))
                return json.dumps(self.iceberg.verify_integration(found))
            case "SYSTEM$GET_ICEBERG_TABLE_INFORMATION", (table,):
                found = self.rights.need(role, "SELECT", "ICEBERG TABLE", _quoted(table))
                return json.dumps({"metadataLocation": found.facts["metadata"], "status": "success"})
            case "SYSTEM$AUTO_REFRESH_STATUS", (table,):
                return json.dumps(
                    self.iceberg.status(self.rights.need(role, "SELECT", "ICEBERG TABLE", _quoted(table)))
                )
            case "SYSTEM$CATALOG_LINK_STATUS", (database,):
                self.rights.need(role, "USAGE", "DATABASE", (database,))
                return json.dumps({"executionState": "RUNNING", "failureDetails": []})
        raise Refusal(f"SQL compilation error:\nUnknown function {statement.kind}.", "002140")

    def _role(self, role: str) -> None:
        if ("ROLE", (role,)) not in self.rights.objects:
            raise absent("role", (role,))


def fingerprint(public_key: str) -> str:
    """As Snowflake shows it, of a key in base64."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(public_key)).digest()).decode()


def _quoted(text: str) -> Name:
    """The parts of a name in a string: `"A"."B"."C"`."""
    return tuple(re.findall(r'"([^"]+)"', text))


def _said(text: str) -> Rows:
    return [{"status": text}]
