"""What people ask of a running job: a property of the table, answered between two rounds."""

from __future__ import annotations

from calve import forget, redrive
from glue_jobs.target import Target

REQUESTS = {redrive.REQUEST, forget.REQUEST, forget.LEFT}


def requested(target: Target) -> bool:
    """True where a request waits; asks the catalog."""
    found = target.lake.load(target.name)
    return found is not None and not REQUESTS.isdisjoint(found.properties)
