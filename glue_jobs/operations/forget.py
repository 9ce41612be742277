"""A person is forgotten: rows and letters that a request tells leave both tables, their history and the exports (ADR 24).

Everything is done again by whoever finds the request, until it is answered: rows that are gone are not found a second time, and
what was found is noted before anything goes. So a job may die between any two of these steps.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace

from py4j.protocol import Py4JNetworkError

from calve.config.job import Aggregate, Upsert
from calve.config.maintenance import is_held
from calve.errors import CalveError, Fatal, LostRace, Retryable
from calve.log import event
from calve.names import BRANCH_PREFIX
from calve.requests.expired_history import Earlier
from calve.requests.forget import (
    FORGOTTEN,
    FOUND,
    LEFT,
    REQUEST,
    REQUEST_ID,
    Entry,
    Found,
    Request,
    began_at,
    column_problem,
    masking_problem,
    places_of,
    position_after,
    to_json,
)
from calve.requests.redrive import is_level
from calve.table.position import (
    NO_LETTERS,
    POSITION_TAG,
    Ledger,
    Position,
    TopicKey,
    encode,
    published_letters,
    root,
)
from calve.table.protocol import may_publish, nearest_position
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.commit_cost import Meter
from glue_jobs.iceberg.purge import (
    delete,
    deliveries,
    holding,
    old_metadata,
    remove,
    rewritten_by_others,
)
from glue_jobs.iceberg.staging import Ambiguous, Conflict, Staged
from glue_jobs.operations.forget_rewriting import (
    Accept,
    Gone,
    Place,
    gone_letters,
    gone_rows,
    purge,
)
from glue_jobs.operations.persons import letters_of, person_of
from glue_jobs.operations.redrive import now
from glue_jobs.outputs.emit import emit
from glue_jobs.process import faults
from glue_jobs.process.java import problem
from glue_jobs.table.target import Target

QUIET_S = 3600
"""So long ago a compaction by others must be: whoever does one an hour does the next at any moment."""
FIGURES = ("rows", "letters", "files", "removed", "exports", "unopened", "problem")


def serve(target: Target, base: Position) -> bool:
    """Answer the request that waits, if one does and no maintenance holds it; True where main may stand elsewhere now.

    `base`: where the table stands; its dead letters are level with it. What goes wrong before anything is deleted is the answer.

    Raises:
        LostRace, Retryable: as of a round; whoever comes next begins again.
    """
    properties = target.main.properties
    try:
        request = Request.pending(properties)
    except ValueError as error:
        _answer(target, Entry("", now(), now(), problem=str(error)))
        return False
    if request is None:
        if LEFT in properties:
            _clear(target)
        return False
    if is_held(properties, time.time()):
        return False
    forgetting = _Forgetting(target, base, request)
    try:
        entry = forgetting.run()
    except (LostRace, Retryable, Fatal, Py4JNetworkError, ConnectionError):
        raise
    except Exception as error:
        if forgetting.deleting:
            raise
        entry = Entry(request.id, request.at, now(), problem=problem(error))
    _answer(target, entry)
    return True


class _Forgetting:
    """One request under way; `deleting` once something may have gone because of it."""

    def __init__(self, target: Target, base: Position, request: Request) -> None:
        self.target = target
        self.base = base
        self.request = request
        self.deleting = False
        self.meter = Meter(target.lake)

    def run(self) -> Entry:
        target, letters = self.target, self.target.letters.table
        self._require_possible(letters)
        person = person_of(target, self.request)
        emit(target, self.base)
        rows = gone_rows(target, person)
        places, unopened = letters_of(target, person, letters) if letters else ([], 0)
        dead = gone_letters(target, letters, places) if letters else None
        found = self._noted(rows, dead)
        self.deleting = True
        removed = self._purge_main(rows)
        if dead is not None:
            removed += self._purge_letters(places)
        remove(target.main, found.exports)
        faults.point("forget.exported", target.table.name)
        return Entry(
            self.request.id,
            self.request.at,
            now(),
            rows=found.rows,
            letters=found.letters,
            files=found.files,
            removed=removed,
            exports=len(found.exports),
            unopened=unopened,
            row_places=found.row_places,
            letter_places=found.letter_places,
            since=found.since,
        )

    def _require_possible(self, letters: Table | None) -> None:
        """Refuse what cannot be, as an answer; and for now where another writer is moving the dead letters."""
        target = self.target
        if isinstance(target.mode, Aggregate):
            raise CalveError("rows are totals: they do not say who is in them")
        steps, tags = target.table.steps, target.shaping.chain.means.tags
        for each in self.request.where:
            column = each.column
            if why := column_problem(target.main.schema, column) or masking_problem(steps, tags, column):
                raise CalveError(why)
        tables = [target.main, *([letters] if letters else [])]
        for table in tables:
            own = (name for name in table.refs() if name not in ("main", POSITION_TAG))
            if others := sorted(name for name in own if not name.startswith(BRANCH_PREFIX)):
                raise CalveError(f"branches or tags keep snapshots of {table.name}: drop {', '.join(others)}")
        for table in tables:
            if rewritten_by_others(table, int((time.time() - QUIET_S) * 1000)):
                raise CalveError(
                    f"another engine has compacted {table.name} within the last hour: if it does so again now, "
                    "its new files are taken for left-overs. Stop that, and ask an hour later"
                )
        if letters is not None and not is_level(self.base, letters.ancestors()):
            raise Retryable(f"table {letters.name}: another writer is moving the dead letters")

    def _noted(self, rows: Gone, dead: Gone | None) -> Found:
        """What has been found, by this try and by earlier ones, written down before anything goes."""
        target, properties = self.target, self.target.main.properties
        found = Found.of(properties, self.request.id)
        line = list(target.main.ancestors())
        since = began_at(line, Entry.all(properties), Earlier.of(properties, line))
        topic = next(reversed(self.base.offsets), TopicKey("", ""))
        of_rows = places_of((topic, partition, offset) for partition, offset, _ in rows.places)
        found = replace(found, since=found.since or since).with_rows(rows.rows, len(rows.tasks), of_rows)
        if dead is not None:
            of_letters = places_of((TopicKey(*each[:2]), *each[2:]) for each in dead.places)
            found = found.with_letters(dead.rows, of_letters)
        stored = deliveries(target.lake, target.main)
        if not isinstance(target.mode, Upsert):
            stored = holding(stored, rows.all) if rows.places else []
        found = found.with_exports(each.manifest for each in stored)
        target.main.set_properties({FOUND: found.to_json()})
        faults.point("forget.noted", target.table.name)
        target.main.refresh()
        return found

    def _purge_main(self, rows: Gone) -> int:
        """Raises LostRace where another round is there by now, Retryable where only others have committed."""
        table = self.target.main
        try:
            return purge(self.target, table, rows, self._next, lambda: None)
        except (LostRace, Conflict, Ambiguous) as error:
            table.refresh()
            current = nearest_position(table.ancestors())
            mine = current is not None and current.writer == self.target.writer
            raise (Retryable if mine or may_publish(table.ancestors(), self.base) else LostRace)(
                error.message
            ) from None

    def _next(self, staged: Staged) -> tuple[dict[str, str], Accept]:
        """The summary of the next commit on main: no offset moves. It is no round, so that nothing of its files is emitted."""
        before = self.base
        self.base = position_after(before, round_id=uuid.uuid4().hex, writer=self.target.writer)
        if not before.offsets:
            summary = root(writer=self.base.writer, topic=before.topic, round_id=self.base.round)
        else:
            topic = next(reversed(before.offsets))
            metrics = self.meter.of_work(self.target.main, staged, all_read=True) | self.target.carried()
            summary = encode(position=self.base, topic=topic, start={}, ledger=Ledger(), metrics=metrics)
            del summary["calve.from"]
        return summary | {REQUEST_ID: self.request.id}, lambda ancestors: may_publish(ancestors, before)

    def _purge_letters(self, places: Sequence[Place]) -> int:
        """The dead-letter table says the same as before: that it is level with main."""
        target = self.target
        table = target.letters.table
        if table is None:
            raise Retryable(f"table {target.name.dead_letters} is gone")
        target.letters.drop_branches(table)
        table.refresh()
        dead = gone_letters(target, table, places)
        named = self.base.dead_letters.round if self.base.dead_letters else NO_LETTERS
        summary = published_letters(self.base, named) | {REQUEST_ID: self.request.id}
        try:
            return purge(
                target,
                table,
                dead,
                lambda _: (summary, lambda ancestors: is_level(self.base, ancestors)),
                self._require_alone,
            )
        except (LostRace, Conflict, Ambiguous) as error:
            raise Retryable(error.message) from None

    def _require_alone(self) -> None:
        main = self.target.main
        main.refresh()
        if not may_publish(main.ancestors(), self.base):
            raise LostRace(f"table {main.name}: another writer published first, or main was rolled back")


def _answer(target: Target, entry: Entry) -> None:
    """Put the answer in the place of the request, and delete the metadata files that hold it."""
    target.main.refresh()
    entries = [*Entry.all(target.main.properties), entry]
    said = {FORGOTTEN: to_json(entries), LEFT: entry.id}
    target.main.set_properties(said, remove=[REQUEST, FOUND])
    faults.point("forget.answered", target.table.name)
    _clear(target)
    event(
        "forget.answered",
        table=str(target.name),
        topic=target.table.topic,
        request=entry.id,
        **{name: value for name, value in asdict(entry).items() if name in FIGURES},
    )


def _clear(target: Target) -> None:
    target.main.refresh()
    delete(target.main, old_metadata(target.main))
    faults.point("forget.cleared", target.table.name)
    target.main.set_properties({}, remove=[LEFT])
    target.main.refresh()
