"""What people ask of a running job: a property of the table, answered between two rounds."""

from __future__ import annotations

from calve import backfill, forget, pausing, redrive, travel
from calve.turn import TURN
from glue_jobs.target import Target

REQUESTS = {redrive.REQUEST, forget.REQUEST, forget.LEFT, travel.REQUEST, backfill.REQUEST, TURN}


def requested(target: Target) -> bool:
    """True where a request waits, or a pause began or ended since the table was looked at last; asks the catalog."""
    found = target.lake.load(target.name)
    if found is None:
        return False
    properties, known = found.properties, target.main.properties
    return not REQUESTS.isdisjoint(properties) or properties.get(pausing.PAUSED) != known.get(pausing.PAUSED)
