"""Forget a person: remove the requested rows and dead letters from both tables, their history and the exports (ADR 24).

Every job that finds the request repeats all steps until it is answered. A repeated step does not find removed rows
again. What was found is stored before anything is removed. So a job may crash between any two steps.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import ClassVar

from calve.config.maintenance import is_held
from calve.errors import CalveError, LostRace, Retryable
from calve.log import event
from calve.names import BRANCH_PREFIX
from calve.requests.expired_history import ExpiredHistory
from calve.requests.forget import (
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
from calve.table.position import NO_LETTERS, Ledger, Position, TopicKey
from calve.table.protocol import may_publish, nearest_position
from calve.table.summary import (
    FORGET,
    FORGET_FOUND,
    FORGET_LEFT,
    FORGOTTEN,
    FROM,
    POSITION_TAG,
    encode,
    published_letters,
    root,
)
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.commit_cost import CostMeter
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
from glue_jobs.operations.operation import RAISED, now
from glue_jobs.operations.persons import letters_of, person_of
from glue_jobs.outputs.emit import emit
from glue_jobs.process import faults
from glue_jobs.table.open_table import OpenTable

QUIET_S = 3600
"""How long ago the last compaction by another engine must be, in seconds. A more frequent one may run at any moment."""
FIGURES = ("rows", "letters", "files", "removed", "exports", "unopened", "problem")


class Forget:
    """As `Operation`. It waits while maintenance holds it. `changed`: something may have been deleted."""

    raised: ClassVar[tuple[type[Exception], ...]] = (*RAISED, Retryable)

    def __init__(self, opened: OpenTable, base: Position) -> None:
        self.table = self.opened = opened
        self.base = base
        self.changed = False
        self.meter = CostMeter(opened.services.lake)

    def pending(self) -> Request | None:
        properties = self.opened.main.properties
        found = Request.pending(properties)
        if found is None and FORGET_LEFT in properties:
            _clear(self.opened)
        return None if is_held(properties, time.time()) else found

    def refuse(self, request: Request) -> str | None:
        return None

    def refused(self, request: Request | None, why: str) -> Entry:
        return Entry(request.id if request else "", request.at if request else now(), now(), problem=why)

    def answer(self, answer: Entry) -> None:
        """Also delete the metadata files that contain the request."""
        opened = self.opened
        opened.main.refresh()
        entries = [*Entry.all(opened.main.properties), answer]
        said = {FORGOTTEN: to_json(entries), FORGET_LEFT: answer.id}
        opened.main.set_properties(said, remove=[FORGET, FORGET_FOUND])
        faults.point("forget.answered", opened.config.name)
        _clear(opened)
        event(
            "forget.answered",
            table=str(opened.name),
            topic=opened.config.topic,
            request=answer.id,
            **{name: value for name, value in asdict(answer).items() if name in FIGURES},
        )

    def run(self, request: Request) -> Entry:
        self.request = request
        opened, letters = self.opened, self.opened.dead_letters.table
        self._require_possible(letters)
        person = person_of(opened, self.request)
        emit(opened, self.base)
        rows = gone_rows(opened, person)
        places, unopened = letters_of(opened, person, letters) if letters else ([], 0)
        dead = gone_letters(opened, letters, places) if letters else None
        found = self._noted(rows, dead)
        self.changed = True
        removed = self._purge_main(rows)
        if dead is not None:
            removed += self._purge_letters(places)
        remove(opened.main, found.exports)
        faults.point("forget.exported", opened.config.name)
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
        """Refuse impossible requests with an answer. Retry later if another writer is moving the dead letters."""
        opened = self.opened
        if why := opened.mode.cannot_forget:
            raise CalveError(why)
        steps, tags = opened.config.steps, opened.row_plan.chain.means.tags
        for each in self.request.where:
            column = each.column
            if why := column_problem(opened.main.schema, column) or masking_problem(steps, tags, column):
                raise CalveError(why)
        tables = [opened.main, *([letters] if letters else [])]
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
        """Store what this and earlier tries found, before anything is removed."""
        opened, properties = self.opened, self.opened.main.properties
        found = Found.of(properties, self.request.id)
        line = list(opened.main.ancestors())
        since = began_at(line, Entry.all(properties), ExpiredHistory.of(properties, line))
        topic = next(reversed(self.base.offsets), TopicKey("", ""))
        of_rows = places_of((topic, partition, offset) for partition, offset, _ in rows.places)
        found = replace(found, since=found.since or since).with_rows(rows.rows, len(rows.tasks), of_rows)
        if dead is not None:
            of_letters = places_of((TopicKey(*each[:2]), *each[2:]) for each in dead.places)
            found = found.with_letters(dead.rows, of_letters)
        stored = deliveries(opened.services.lake, opened.main)
        if not opened.mode.replaces_rows:
            stored = holding(stored, rows.all) if rows.places else []
        found = found.with_exports(each.manifest for each in stored)
        opened.main.set_properties({FORGET_FOUND: found.to_json()})
        faults.point("forget.noted", opened.config.name)
        opened.main.refresh()
        return found

    def _purge_main(self, rows: Gone) -> int:
        """Raises LostRace if another round committed meanwhile, Retryable if only others committed."""
        table = self.opened.main
        try:
            return purge(self.opened, table, rows, self._next, lambda: None)
        except (LostRace, Conflict, Ambiguous) as error:
            table.refresh()
            current = nearest_position(table.ancestors())
            mine = current is not None and current.writer == self.opened.services.writer
            raise (Retryable if mine or may_publish(table.ancestors(), self.base) else LostRace)(
                error.message
            ) from None

    def _next(self, staged: Staged) -> tuple[dict[str, str], Accept]:
        """The summary of the next commit on main. It moves no offset. It is not a round, so nothing in its files is emitted."""
        before = self.base
        self.base = position_after(before, round_id=uuid.uuid4().hex, writer=self.opened.services.writer)
        if not before.offsets:
            summary = root(writer=self.base.writer, topic=before.topic, round_id=self.base.round)
        else:
            topic = next(reversed(before.offsets))
            metrics = self.meter.of_work(self.opened.main, staged, all_read=True) | self.opened.carried()
            summary = encode(position=self.base, topic=topic, start={}, ledger=Ledger(), metrics=metrics)
            del summary[FROM]
        return summary | {FORGET: self.request.id}, lambda ancestors: may_publish(ancestors, before)

    def _purge_letters(self, places: Sequence[Place]) -> int:
        """The summary of the dead-letter table stays the same: it is level with main."""
        opened = self.opened
        table = opened.dead_letters.table
        if table is None:
            raise Retryable(f"table {opened.name.dead_letters} is gone")
        opened.dead_letters.drop_branches(table)
        table.refresh()
        dead = gone_letters(opened, table, places)
        named = self.base.dead_letters.round if self.base.dead_letters else NO_LETTERS
        summary = published_letters(self.base, named) | {FORGET: self.request.id}
        try:
            return purge(
                opened,
                table,
                dead,
                lambda _: (summary, lambda ancestors: is_level(self.base, ancestors)),
                self._require_alone,
            )
        except (LostRace, Conflict, Ambiguous) as error:
            raise Retryable(error.message) from None

    def _require_alone(self) -> None:
        main = self.opened.main
        main.refresh()
        if not may_publish(main.ancestors(), self.base):
            raise LostRace(f"table {main.name}: another writer published first, or main was rolled back")


def _clear(opened: OpenTable) -> None:
    opened.main.refresh()
    delete(opened.main, old_metadata(opened.main))
    faults.point("forget.cleared", opened.config.name)
    opened.main.set_properties({}, remove=[FORGET_LEFT])
    opened.main.refresh()
