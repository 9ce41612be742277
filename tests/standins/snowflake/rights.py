"""Objects of an account, who owns them and who may do what with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.standins.snowflake.grammar import Name
from tests.standins.snowflake.refusals import absent, forbidden

ADMIN = "ACCOUNTADMIN"
BUILT_IN = {ADMIN: {"SYSADMIN"}, "SYSADMIN": set[str]()}
GRANTABLE = {
    "WAREHOUSE": {"USAGE"},
    "DATABASE": {"USAGE"},
    "SCHEMA": {"USAGE", "CREATE ICEBERG TABLE"},
    "EXTERNAL VOLUME": {"USAGE"},
    "CATALOG INTEGRATION": {"USAGE"},
    "USER": {"MODIFY PROGRAMMATIC AUTHENTICATION METHODS"},
    "ICEBERG TABLE": {"SELECT"},
}


@dataclass(slots=True)
class Object:
    """One object; `facts` is what Snowflake knows of it besides its options."""

    kind: str
    name: Name
    owner: str
    options: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Rights:
    """Everything in an account. granted: (privilege, kind, name, role); future: (privilege, kind, container, role)."""

    objects: dict[tuple[str, Name], Object] = field(default_factory=dict)
    granted: set[tuple[str, str, Name, str]] = field(default_factory=set)
    future: set[tuple[str, str, Name, str]] = field(default_factory=set)
    inherits: dict[str, set[str]] = field(default_factory=lambda: {k: set(v) for k, v in BUILT_IN.items()})
    of_user: dict[str, set[str]] = field(default_factory=dict)

    def add(self, made: Object) -> None:
        self.objects[made.kind, made.name] = made
        for privilege, kind, container, role in self.future:
            if kind == made.kind and made.name[: len(container)] == container:
                self.granted.add((privilege, kind, made.name, role))

    def drop(self, kind: str, name: Name) -> None:
        """The object, all inside of it, and every right on them; a role's objects go to the administrator."""
        for key in [key for key in self.objects if key == (kind, name) or _inside(key, kind, name)]:
            del self.objects[key]
            self.granted = {each for each in self.granted if (each[1], each[2]) != key}
        self.future = {each for each in self.future if each[2][: len(name)] != name}
        if kind == "ROLE":
            (role,) = name
            self.granted = {each for each in self.granted if each[3] != role}
            self.future = {each for each in self.future if each[3] != role}
            for held in (*self.inherits.values(), *self.of_user.values()):
                held.discard(role)
            for each in self.objects.values():
                each.owner = ADMIN if each.owner == role else each.owner

    def roles(self, role: str) -> set[str]:
        """A role and all that it inherits."""
        found, ahead = set[str](), [role]
        while ahead:
            if (each := ahead.pop()) not in found:
                found.add(each)
                ahead += self.inherits.get(each, ())
        return found

    def has(self, role: str, privilege: str, kind: str, name: Name) -> bool:
        """Whether a role owns the object or has the privilege; `ANY`: whether it has any."""
        held = self.roles(role)
        each = self.objects.get((kind, name))
        if ADMIN in held and kind != "ICEBERG TABLE":
            return True
        return (each is not None and each.owner in held) or any(
            (kind, name) == (its_kind, its_name) and whose in held and privilege in (its_privilege, "ANY")
            for its_privilege, its_kind, its_name, whose in self.granted
        )

    def need(self, role: str, privilege: str, kind: str, name: Name) -> Object:
        """The object.

        Raises:
            Refusal: it is not there, or the role has neither it nor the privilege.
        """
        if kind == "ICEBERG TABLE":
            for inner in (1, 2):
                self.need(role, "USAGE", ("DATABASE", "SCHEMA")[inner - 1], name[:inner])
        each = self.objects.get((kind, name))
        if each is None or not self.has(role, "ANY", kind, name):
            raise absent(kind, name)
        if not self.has(role, privilege, kind, name):
            raise forbidden(kind, name)
        return each

    def owned(self, role: str, kind: str, name: Name) -> Object:
        """Raises: as `need`."""
        return self.need(role, "OWNERSHIP", kind, name)


def _inside(key: tuple[str, Name], kind: str, name: Name) -> bool:
    return kind in ("DATABASE", "SCHEMA") and len(key[1]) > len(name) and key[1][: len(name)] == name
