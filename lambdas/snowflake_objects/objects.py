"""Makes what a deployment has in Snowflake, follows changed settings, and removes what it made, no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calve.errors import ConfigError
from calve.publishing import Snowflake
from lambdas.snowflake.key_pair import KeyPair
from lambdas.snowflake.keys import register
from lambdas.snowflake.sql import name
from lambdas.snowflake.sql_api import Session
from lambdas.snowflake.statements import Lake, Object, grants, mark, objects

INFORMATION = "INFORMATION_SCHEMA"
READ_THROUGH = {"EXTERNAL VOLUME", "CATALOG INTEGRATION"}
"""What Snowflake does not drop while a table reads through it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be in an account."""

    deployment: str
    config: Snowflake
    lake: Lake

    @property
    def objects(self) -> tuple[Object, ...]:
        return objects(self.config, self.deployment, self.lake)


def make(
    session: Session, wanted: Wanted, old: Wanted | None, key: KeyPair, trust: Callable[[], object]
) -> None:
    """Make what is missing and grant what is needed; what an earlier deploy made and nobody wants any more is removed first.

    `trust` is called when there is all that reaches the lake, and before there is anything that reads it.

    Raises:
        ConfigError: an object of that name exists and is somebody else's.
        Refused, Retryable, Fatal: as `Session.execute`.
    """
    _refuse_what_is_not_ours(session, wanted)
    if old:
        _follow(session, wanted, old)
    for each in wanted.objects:
        if each.kind == "DATABASE":
            trust()
        session.execute(each.create)
    register(session, wanted.config.service_user, key)
    for grant in grants(wanted.config):
        session.execute(grant)


def _refuse_what_is_not_ours(session: Session, wanted: Wanted) -> None:
    """Before anything is made, so that a refusal leaves nothing behind."""
    for each in wanted.objects:
        if each.own and (comment := _comment(session, each)) not in (None, mark(wanted.deployment)):
            raise ConfigError(
                f'Snowflake has a {each.kind.lower()} {each.name} already, with the comment "{comment}"',
                fix="it is not this deployment's: choose another name in publish.snowflake, or drop it",
            )


def remove(session: Session, wanted: Wanted, unwanted: Sequence[Object] | None = None) -> list[str]:
    """Drop tables and objects that bear the deployment's mark, those that need others first; returns what was kept.

    A schema or database in which somebody else has something is kept. Raises: as `Session.execute`.
    """
    dropped = wanted.objects if unwanted is None else unwanted
    kinds = {each.kind for each in dropped}
    if not wanted.config.linked and kinds & (READ_THROUGH | {"SCHEMA", "DATABASE"}):
        _drop_tables(session, wanted)
    kept = []
    for each in reversed(dropped):
        if _comment(session, each) != mark(wanted.deployment):
            continue
        if each.kind in ("SCHEMA", "DATABASE") and not wanted.config.linked and _inhabited(session, each):
            kept.append(f"{each.kind} {each.name}")
        else:
            session.execute(each.drop)
    return kept


def _follow(session: Session, wanted: Wanted, old: Wanted) -> None:
    """Drop what no longer is as it was made, and set what can be set."""
    now = {(each.kind, each.parts): each for each in wanted.objects}
    gone = []
    for each in old.objects:
        new = now.get((each.kind, each.parts))
        if new is None or new.fixed != each.fixed:
            gone.append(each)
        elif new.variable != each.variable and _comment(session, new) == mark(wanted.deployment):
            session.execute(new.alter)
    if any(each.kind in READ_THROUGH for each in gone) and old.config.linked:
        gone += [each for each in old.objects if each.kind == "DATABASE" and each not in gone]
    remove(session, old, gone)


def _drop_tables(session: Session, wanted: Wanted) -> None:
    """Drop the tables that read through the deployment's integration: it made them."""
    schema = Object("SCHEMA", (wanted.config.database, wanted.config.schema), "")
    if not _exists(session, schema):
        return
    for row in session.execute(f"SHOW ICEBERG TABLES IN SCHEMA {schema.name}"):
        if row["catalog_name"] == wanted.config.integration:
            session.execute(f"DROP ICEBERG TABLE IF EXISTS {name(*schema.parts, str(row['name']))}")


def _exists(session: Session, schema: Object) -> bool:
    database = Object("DATABASE", schema.parts[:1], "")
    return _comment(session, database) is not None and _comment(session, schema) is not None


def _comment(session: Session, each: Object) -> str | None:
    """The comment of an object; None where there is no such object."""
    if each.kind == "SCHEMA" and _comment(session, Object("DATABASE", each.parts[:1], "")) is None:
        return None
    rows = session.execute(each.show)
    return next((row.get("comment") or "" for row in rows if row["name"] == each.parts[-1]), None)


def _inhabited(session: Session, each: Object) -> bool:
    found = session.execute(f"SHOW OBJECTS IN {each.kind} {each.name}")
    return any(row["schema_name"] != INFORMATION for row in found)
