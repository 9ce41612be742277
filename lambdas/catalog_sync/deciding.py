"""What to do about one table: a function of what Glue has, what the catalog has, and what we made there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lambdas.lake_tables import is_newer

if TYPE_CHECKING:
    from lambdas.catalog_sync.catalog import Registered
    from lambdas.lake_tables import Head


class Act(StrEnum):
    """KEEP: both are equal. ABSENT: neither has it, or what is there is nobody's business. REFUSE: a person has to decide."""

    KEEP = "keep"
    ABSENT = "absent"
    REGISTER = "register"
    MOVE = "move"
    DROP = "drop"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` and `fix` say why it is refused."""

    act: Act
    reason: str | None = None
    fix: str | None = None


FOREIGN = Decision(
    Act.REFUSE,
    "the catalog has a table of this name that calve did not register",
    "drop it there, or name another publish.iceberg_rest.namespace",
)
BEHIND = Decision(
    Act.REFUSE,
    "the catalog has newer metadata of the table than Glue; it is not moved back",
    "write the table through Glue alone; to go back in the catalog, too, drop the table there",
)


def decide(head: Head | None, there: Registered | None, ours: str | None) -> Decision:
    """`head`: what is published of Glue, None where nothing is. `ours`: the uuid of the table that we registered, if any."""
    if there is None:
        return Decision(Act.REGISTER if head else Act.ABSENT)
    if head is None:
        return Decision(Act.DROP if there.uuid == ours else Act.ABSENT)
    if ours is None or there.uuid not in (ours, head.uuid):
        return FOREIGN
    if there.metadata_location == head.metadata_location:
        return Decision(Act.KEEP)
    if there.uuid == head.uuid and not is_newer(head, there):
        return BEHIND
    return Decision(Act.MOVE)
