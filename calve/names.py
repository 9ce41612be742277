"""Names that come from outside, and every name that is derived from them.

Topics, tables and fields are named by people and registries, so each name is checked against a whitelist before it
reaches SQL, a path or the catalog. Glue folds names to lower case: two names that differ only by case are one table.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

SYSTEM_COLUMN = "_kafka"
RECORD_KEY = f"{SYSTEM_COLUMN}.key"
DEAD_LETTERS_SUFFIX = "__dead_letters"
BRANCH_PREFIX = "calve_round_"
MSK_PREFIX = "AmazonMSK_"
OWNER_TAG = "calve:deployment"
"""Tag of the bucket and the key, and parameter of databases, that name the deployment that made them."""

TABLE_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,199}")
DATABASE_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,199}")
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of the lake, without the catalog."""

    database: str
    table: str

    @property
    def dead_letters(self) -> TableName:
        return TableName(self.database, self.table + DEAD_LETTERS_SUFFIX)

    def quoted(self, catalog: str) -> str:
        """The name for Spark SQL, each part in backquotes."""
        return ".".join(quote(part) for part in (catalog, self.database, self.table))

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


def log_prefix(deployment: str, job: str, beside: str = "") -> str:
    """What the log groups of a job begin with. Glue adds `/output`, which has the events, and `/error`."""
    return f"/calve/{deployment}/{job}{beside}"


LONGEST_SCHEDULE = 64


def schedule_name(name: str) -> str:
    """The name of an EventBridge schedule. The end of a longer one becomes a hash of all of it."""
    if len(name) <= LONGEST_SCHEDULE:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_SCHEDULE - len(digest) - 1]}-{digest}"


def quote(identifier: str) -> str:
    """An identifier for Spark SQL; a backquote inside it is doubled."""
    return "`" + identifier.replace("`", "``") + "`"


def quote_path(path: str) -> str:
    """A dotted path of columns for Spark SQL, each part in backquotes."""
    return ".".join(quote(part) for part in path.split("."))


def database_for_cluster(cluster_id: str) -> str:
    """The Glue database of a cluster under `namespace: cluster_id`.

    A KRaft cluster id is base64url, so it may hold capitals, `-` and `_`. Glue databases are lower case; two clusters whose
    ids differ only by case would share one, which the job refuses when it sees another cluster id in the table.
    """
    return cluster_id.lower()


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that may have been meant, in any case of letters; None where none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def as_table_name(text: str) -> str:
    """A topic's name, or a part of it, as a part of a table's; it may be empty, and too long."""
    return re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")


def table_problem(name: str) -> str | None:
    """Why `name` can be no table's name, or None where it can."""
    if not TABLE_NAME.fullmatch(name):
        return f'"{name}" is not a table name: use a-z, 0-9 and _ (at most 200, not starting with _)'
    if name.endswith(DEAD_LETTERS_SUFFIX):
        return f'"{name}" ends in {DEAD_LETTERS_SUFFIX}, which is reserved for dead letters'
    return None


def topic_problem(name: str) -> str | None:
    """Why `name` can be no topic's name, or None where it can."""
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        return f'"{name}" is not a topic name: use A-Z, a-z, 0-9, ".", "_" and "-" (at most 249)'
    return None


def field_problem(path: str) -> str | None:
    """Why a (dotted) field path cannot become columns, or None where it can."""
    for part in path.split("."):
        if not FIELD_NAME.fullmatch(part):
            return f'"{path}" is not a field path: "{part}" must be letters, digits and _ and start with a letter or _'
    if path.split(".")[0].lower() == SYSTEM_COLUMN:
        return f'"{path}" is reserved: {SYSTEM_COLUMN} holds topic, partition, offset and the other facts of the record'
    return None


def of_msk(reference: str) -> bool:
    """Whether a cluster of MSK may take its users from this secret, by its name; a key of its owner's encrypts it then."""
    kind, _, secret = reference.partition(":")
    return kind == "aws" and secret.rpartition(":secret:")[2].startswith(MSK_PREFIX)
