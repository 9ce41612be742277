"""Glue, an Iceberg REST catalog and the rows of state in memory, where at every call something else may happen first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

from calve.names import TableName
from lambdas.catalog_sync.catalog import Conflict, Unanswered
from lambdas.catalog_sync.sync import Sync
from lambdas.followers import Head
from lambdas.publish_states import PublishState, PublishStates, Target

NAME = TableName("trading", "trades")
NAMESPACE = "trading"


class Killed(BaseException):
    """The function dies here."""


class Overtaken(BaseException):
    """The function dies here, and what it asked for comes to pass a little later."""


class NotThere(Exception):
    pass


@dataclass
class World:
    """One table. `disturb` is called before every call to a system, and after every write, with its name."""

    now: int = 1_000_000
    versions: list[dict[str, Any]] = field(default_factory=list)
    there: int | None = None
    shown: Head | None = None
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    rows: dict[tuple[str, str], PublishState] = field(default_factory=dict)
    leases: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    seen: list[int | None] = field(default_factory=list)
    disturb: Callable[[str], None] = lambda _: None
    under_way: list[Callable[[], None]] = field(default_factory=list)

    def call(self, name: str) -> None:
        while self.under_way:
            self.under_way.pop()()
        self.disturb(name)

    def write(self, effect: Callable[[], None]) -> None:
        try:
            self.call("write")
        except Overtaken:
            self.under_way.append(effect)
            raise Killed from None
        effect()
        self.call("written")

    def commit(self, uuid: str = "u1", *, slow_clock: bool = False, snapshot: bool = True) -> None:
        """Newer metadata in Glue; a snapshot more, or of an older clock none."""
        self.now += 7
        before = [each for each in self.versions if each["table-uuid"] == uuid]
        sequence = (before[-1]["last-sequence-number"] if before else 0) + snapshot
        self.versions.append(
            {
                "table-uuid": uuid,
                "last-sequence-number": sequence,
                "last-updated-ms": self.now - (50 if slow_clock else 0),
                "current-snapshot-id": sequence,
                "snapshots": [{"snapshot-id": sequence, "sequence-number": 1, "timestamp-ms": self.now}],
                "metadata-log": [
                    {"metadata-file": f"s3://lake/{self.versions.index(each)}"} for each in before[-3:]
                ],
            }
        )
        self.there = len(self.versions) - 1

    def show(self, version: int | None) -> None:
        """What the catalog has from now on."""
        self.seen.append(version)
        if version is None:
            self.shown = None
            return
        metadata = self.versions[version]
        self.shown = Head(
            name=NAME,
            uuid=metadata["table-uuid"],
            metadata_location=f"s3://lake/{version}",
            sequence_number=metadata["last-sequence-number"],
            updated_ms=metadata["last-updated-ms"],
            snapshot_id=metadata["current-snapshot-id"],
            previous=frozenset(each["metadata-file"] for each in metadata["metadata-log"]),
        )

    def sync(self, **options: Any) -> Sync:
        states: Any = States(self)
        catalog: Any = Catalog(self)
        options = {"patience_s": -1} | options
        return Sync(
            glue=Glue(self),
            s3=Store(self),
            catalog=catalog,
            states=states,
            deployment="trading",
            clock=lambda: self.now,
            **options,
        )

    @property
    def row(self) -> PublishState | None:
        return self.rows.get((Target.ICEBERG_REST, str(NAME)))


@dataclass
class Glue:
    world: World

    class exceptions:
        EntityNotFoundException = NotThere

    def get_table(self, **_: str) -> dict[str, Any]:
        self.world.call("glue")
        if self.world.there is None:
            raise NotThere
        return {"Table": {"Parameters": {"metadata_location": f"s3://lake/{self.world.there}"}}}


@dataclass
class Store:
    world: World

    def get_object(self, **where: str) -> dict[str, Any]:
        return {"Body": BytesIO(json.dumps(self.world.versions[int(where["Key"])]).encode())}


@dataclass
class Catalog:
    """A catalog, and its writer."""

    world: World

    def find(self, namespace: str, table: str) -> Head | None:
        self.world.call("find")
        return self.world.shown

    def namespace(self, namespace: str) -> dict[str, str] | None:
        return self.world.namespaces.get(namespace)

    def make_namespace(self, namespace: str, properties: dict[str, str]) -> None:
        self.world.namespaces.setdefault(namespace, properties)

    def drop_namespace(self, namespace: str) -> None:
        if self.world.shown is None:
            self.world.namespaces.pop(namespace, None)

    def register(self, namespace: str, head: Head, now_ms: int) -> None:
        def effect() -> None:
            if self.world.shown is not None:
                raise Conflict("it exists")
            self.world.show(version_of(head.metadata_location))

        self.world.write(effect)

    def move(self, namespace: str, head: Head, now_ms: int) -> None:
        self.world.write(lambda: self.world.show(version_of(head.metadata_location)))

    def drop(self, namespace: str, there: Head, now_ms: int) -> None:
        self.world.write(lambda: self.world.show(None))


@dataclass
class States:
    """As `PublishStates`, which has tests of its own against DynamoDB."""

    world: World

    find: Any = field(init=False)

    def __post_init__(self) -> None:
        assert {name for name in vars(PublishStates) if not name.startswith("_")} == {
            *("find", "all", "put", "remove", "take", "release"),
        }
        self.find = lambda target, table: self.world.rows.get((target, table))

    def all(self, target: Target) -> list[PublishState]:
        return list(self.world.rows.values())

    def put(self, state: PublishState, holder: str | None = None) -> bool:
        self.world.call("put")
        key = (state.target, state.table)
        if holder is not None and self.world.leases.get(key, ("", 0))[0] != holder:
            return False
        self.world.rows[key] = replace(state)
        return True

    def remove(self, target: Target, table: str, holder: str | None = None) -> bool:
        self.world.call("put")
        if self.world.leases.get((target, table), ("", 0))[0] != holder:
            return False
        self.world.rows.pop((target, table), None)
        self.world.leases.pop((target, table))
        return True

    def take(self, target: Target, table: str, holder: str, *, now_ms: int, until_ms: int) -> bool:
        self.world.call("take")
        held = self.world.leases.get((target, table))
        if held and held[1] >= now_ms:
            return False
        self.world.leases[target, table] = (holder, until_ms)
        return True

    def release(self, target: Target, table: str, holder: str) -> None:
        if self.world.leases.get((target, table), ("", 0))[0] == holder:
            self.world.leases.pop((target, table))


def version_of(location: str) -> int:
    return int(location.rpartition("/")[2])


def lost() -> Unanswered:
    return Unanswered("nobody knows")
