"""Take over a table of another writer, as `calve adopt` asks in one of its properties: one commit, with the position (ADR 74).

The command has proved the offsets by the table and its topic. The job checks that they still apply, and that the schemas fit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from calve.config import job
from calve.errors import CalveError, Retryable, Suspended
from calve.log import event
from calve.requests.requests import Adopt, Entry, now
from calve.schema.columns import KAFKA, Json, struct
from calve.schema.evolution import Change, changes, data_columns, required
from calve.table.position import Ledger, Position
from calve.table.protocol import TopicState, nearest_position
from calve.table.summary import ADOPT, ADOPTED, INITIALISED, TOPIC, TOPIC_KEY, encode
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.exposure import require_own_paths
from glue_jobs.iceberg.staging import Ambiguous, Conflict, take
from glue_jobs.process import faults
from glue_jobs.table.open_table import Services


def adopt(found: Table, config: job.Table, services: Services, fit: Callable[[Json], object]) -> None:
    """Make `found` a table of calve if calve did not create it and somebody asks for it. A table of calve stays as it is.

    fit: raises CalveError if the schemas do not fit these data columns.
    Raises Suspended: `not_ours`: nobody asks, or the request is refused, and the answer is in the properties.
    Raises LostRace, Retryable: another writer was faster, or a system does not answer.
    """
    fix = (
        f"adopt it: calve adopt {config.name}; or name another table; or remove its entry, if it was released"
    )
    try:
        request = Adopt.pending(found.properties)
    except ValueError as error:
        request = None
        _answer(found, Entry("unknown", now(), "adopt", "", problem=str(error)))
    if INITIALISED in found.properties:
        if request is not None:
            why = "calve keeps the table already"
            _answer(found, Entry(request.id, now(), "adopt", "", request.by, problem=why))
        return
    if request is None:
        raise Suspended("not_ours", f"table {found.name} exists, but calve did not create it", fix=fix)
    told = f"adoption of {request.topic}"
    try:
        topic, columns = _checked(found, request, config, services, fit)
    except Retryable:
        raise
    except CalveError as error:
        _answer(found, Entry(request.id, now(), "adopt", told, request.by, problem=error.message))
        raise Suspended("not_ours", f"table {found.name} was not adopted: {error.message}", fix=fix) from None
    _take(
        found, request, topic, columns, config, services, Entry(request.id, now(), "adopt", told, request.by)
    )
    faults.point("table.adopted", config.name)
    event("table.adopted", table=str(found.name), topic=topic.name, request=request.id)


def _answer(found: Table, refused: Entry) -> None:
    found.set_properties(refused.property(), remove=[ADOPT])
    found.refresh()


def _checked(
    found: Table, request: Adopt, config: job.Table, services: Services, fit: Callable[[Json], object]
) -> tuple[TopicState, list[Change]]:
    """The topic, and the changes that make room for `_kafka`. Raises CalveError: the table cannot be adopted."""
    require_own_paths(found)
    if found.head != request.snapshot:
        raise CalveError(
            "the table has changed since its rows were compared: stop its writer, then ask again"
        )
    if config.mode.kind != "append":
        raise CalveError(f"a table that calve did not fill cannot have the mode {config.mode.kind}")
    if found.total("equality-deletes"):
        raise CalveError("it has equality deletes: compact it with its former tools first")
    topic = services.cluster.state(config.topic)
    if str(topic.key) != request.topic:
        raise CalveError(f"the job reads topic {topic.key}, the offsets are of {request.topic}")
    topic.require(request.offsets)
    fit(data_columns(found.schema))
    return topic, changes(found.schema, struct(KAFKA))


def _take(
    found: Table,
    request: Adopt,
    topic: TopicState,
    columns: list[Change],
    config: job.Table,
    services: Services,
    answer: Entry,
) -> None:
    before, round_id = nearest_position(found.ancestors()), uuid.uuid4().hex
    new = Position({}, round_id, services.writer, topic.name)
    position = replace(before or new, round=round_id, writer=services.writer, topic=topic.name, snapshot=None)
    position = replace(position, offsets=position.with_offsets(topic.key, request.offsets))
    start = {topic.key: request.offsets}
    summary = encode(position=position, topic=topic.key, start=start, ledger=Ledger(), metrics={})
    rows = found.total("records") - found.total("position-deletes")
    properties = answer.property() | {
        INITIALISED: "true",
        TOPIC: topic.name,
        TOPIC_KEY: str(topic.key),
        ADOPTED: str(rows),
    }
    if found.format_version < config.format_version:
        properties["format-version"] = str(config.format_version)
    try:
        take(
            found,
            summary | {ADOPT: request.id},
            lambda ancestors: next((each.id for each in ancestors), None) == request.snapshot,
            columns=columns,
            optional=required(found.schema),
            properties=properties,
            remove=[ADOPT],
        )
    except (Ambiguous, Conflict) as error:
        raise Retryable(error.message) from None
