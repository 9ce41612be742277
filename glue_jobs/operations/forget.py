"""Forget a person: remove the requested rows and dead letters from both tables, their history and the exports (ADR 24).

Every job that finds the request repeats all steps until it is answered. A repeated step does not find removed rows
again. What was found is stored before anything is removed. So a job may crash between any two steps.
Data files are rewritten without the rows to remove, and manifests without their entries for removed files.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from calve.config.maintenance import is_held
from calve.errors import CalveError, LostRace, Retryable
from calve.names import BRANCH_PREFIX
from calve.requests.expired_history import ExpiredHistory
from calve.requests.forget import (
    UNPROVABLE_IN_S3_TABLES,
    Entry,
    Found,
    Places,
    Request,
    began_at,
    column_problem,
    masking_problem,
    places_of,
    position_after,
    to_json,
    united,
)
from calve.requests.redrive import is_level
from calve.requests.requests import now
from calve.table.position import NO_DEAD_LETTERS, Ledger, TopicKey
from calve.table.protocol import Commit, may_publish, nearest_position
from calve.table.summary import (
    FORGET,
    FORGET_FOUND,
    FORGET_LEFT,
    FORGOTTEN,
    FROM,
    TAGS,
    encode,
    published_dead_letters,
    root,
)
from glue_jobs.columns.expressions import OFFSET, PARTITION, TIMESTAMP, at
from glue_jobs.dead_letters.records import PLACE
from glue_jobs.iceberg import purge
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.kept_digests import keep_without
from glue_jobs.iceberg.layout import clustered, tasks_for
from glue_jobs.iceberg.rewriting import data_manifests, merging_manifests, overwriting, unmoved, write_rest
from glue_jobs.iceberg.staging import (
    FILE,
    NOTHING,
    Ambiguous,
    Conflict,
    Staged,
    Validator,
    commit,
    publish,
    rows_of,
    whole,
)
from glue_jobs.operations.operation import RAISED, Operation
from glue_jobs.operations.persons import GONE, KEPT, Person, Select, dead_letters_of, person_of
from glue_jobs.outputs.emit import emit
from glue_jobs.process import faults
from glue_jobs.process.java import elements
from glue_jobs.table.open_table import OpenTable

QUIET_S = 3600
"""How long ago the last compaction by another engine must be, in seconds. A more frequent one may run at any moment."""
MOST = 1_000_000
"""No person has this many records: the request probably names a column such as a country."""
FIGURES = ("rows", "files", "removed", "exports", "unopened", "problem")

Place = tuple[Any, ...]
OF_ROWS = "partition int, offset long, timestamp_us long"
OF_DEAD_LETTERS = "cluster_id string, topic_id string, partition int, offset long"
"""The columns that identify a record: in a row, and in a dead letter (`glue_jobs.dead_letters.records.PLACE`)."""
Said = Callable[[Staged], tuple[Mapping[str, str], Validator]]
"""The summary of the next commit, given its new files; and whether the commit is allowed on the table's current head."""


class Forget(Operation[Request, Entry]):
    """It waits while maintenance holds it. `changed`: something may have been deleted."""

    kind = Request
    raised = (*RAISED, Retryable)

    def pending(self) -> Request | None:
        properties = self.table.main.properties
        found = super().pending()
        if found is None and FORGET_LEFT in properties:
            _clear(self.table)
        return None if is_held(properties, time.time()) else found

    def refused(self, request: Request | None, why: str) -> Entry:
        return Entry(request.id if request else "", request.at if request else now(), now(), problem=why)

    def answer(self, answer: Entry) -> None:
        """Also delete the metadata files that contain the request."""
        opened = self.table
        opened.main.refresh()
        entries = [*Entry.all(opened.main.properties), answer]
        said = {FORGOTTEN: to_json(entries), FORGET_LEFT: answer.id}
        opened.main.set_properties(said, remove=[FORGET, FORGET_FOUND])
        faults.point("forget.completed", opened.config.name)
        _clear(opened)
        facts = {name: value for name, value in asdict(answer).items() if name in FIGURES}
        opened.event("forget.completed", request=answer.id, dead_letters=answer.letters, **facts)

    def run(self, request: Request) -> Entry:
        self.request = request
        opened, dead_letters = self.table, self.table.dead_letters.level_with(self.base)
        self._require_possible(dead_letters)
        person = person_of(opened, self.request)
        emit(opened, self.base)
        rows = _gone_rows(opened, person)
        places, unopened = dead_letters_of(opened, person, dead_letters) if dead_letters else ([], 0)
        dead = _gone_dead_letters(opened, dead_letters, places) if dead_letters else None
        found = self._noted(rows, dead)
        self.changed = True
        self._keep_digests(found)
        removed = self._purge_main(rows)
        if dead is not None:
            removed += self._purge_dead_letters(places)
        purge.remove(opened.main, found.exports)
        faults.point("forget.exported", opened.config.name)
        done = {
            "persons": request.persons,
            "requested": request.at,
            "done": now(),
            "removed": removed,
            "unopened": unopened,
        }
        return Entry(**(asdict(found) | done | {"exports": len(found.exports)}))

    def _require_possible(self, dead_letters: Table | None) -> None:
        """Refuse impossible requests with an answer."""
        opened = self.table
        if opened.main.lake.is_managed:
            raise CalveError(UNPROVABLE_IN_S3_TABLES)
        if why := opened.mode.cannot_forget:
            raise CalveError(why)
        steps, tags = opened.config.steps, opened.row_plan.chain.means.tags
        for each in self.request.where:
            column = each.column
            if why := column_problem(opened.main.schema, column) or masking_problem(steps, tags, column):
                raise CalveError(why)
        tables = [opened.main, *([dead_letters] if dead_letters else [])]
        for table in tables:
            own = (name for name in table.refs() if name not in ("main", *TAGS))
            if others := sorted(name for name in own if not name.startswith(BRANCH_PREFIX)):
                raise CalveError(f"branches or tags keep snapshots of {table.name}: drop {', '.join(others)}")
        for table in tables:
            if purge.rewritten_by_others(table, int((time.time() - QUIET_S) * 1000)):
                raise CalveError(
                    f"another engine has compacted {table.name} within the last hour, and this job would delete its "
                    "next files. Stop that engine, and request again an hour later"
                )

    def _noted(self, rows: Gone, dead: Gone | None) -> Found:
        """Store what this and earlier tries found, before anything is removed."""
        opened, properties = self.table, self.table.main.properties
        found = Found.of(properties, self.request.id)
        line = list(opened.main.ancestors())
        since = began_at(line, Entry.all(properties), ExpiredHistory.of(properties, line))
        of_rows = places_of((self.base.newest, partition, offset) for partition, offset, _ in rows.places)
        found = replace(found, since=found.since or since).with_rows(rows.count, len(rows.tasks), of_rows)
        if dead is not None:
            of_dead_letters = places_of((TopicKey(*each[:2]), *each[2:]) for each in dead.places)
            found = found.with_letters(dead.count, of_dead_letters)
        stored = purge.deliveries(opened.main)
        if not opened.mode.replaces_rows:
            stored = purge.holding(stored, rows.rows) if rows.places else []
        found = found.with_exports(each.manifest for each in stored)
        opened.main.set_properties({FORGET_FOUND: found.to_json()})
        faults.point("forget.noted", opened.config.name)
        opened.main.refresh()
        return found

    def _keep_digests(self, found: Found) -> None:
        """Write the digests to a file before all snapshots expire, without those that the found rows are in.

        A digest and the rows that stay would give the hash of a row that is gone.
        """
        main = self.table.main
        of_any_topic = reduce(united, ({"": each} for each in found.row_places.values()), Places())
        kept = keep_without(main, list(main.ancestors()), of_any_topic.get("", {}))
        if kept.properties:
            main.note(kept.properties)
            faults.point("forget.digested", self.table.config.name)
            purge.delete(main, kept.files)

    def _purge_main(self, rows: Gone) -> int:
        """Raises LostRace if another round committed meanwhile, Retryable if only others committed."""
        table = self.table.main
        try:
            return rows.purge(self._next, lambda: None)
        except (LostRace, Conflict, Ambiguous) as error:
            table.refresh()
            current = nearest_position(table.ancestors())
            mine = current is not None and current.writer == self.table.services.writer
            kind = Retryable if mine or may_publish(table.ancestors(), self.base) else LostRace
            raise kind(error.message) from None

    def _next(self, staged: Staged) -> tuple[dict[str, str], Validator]:
        """The summary of the next commit on main. It moves no offset. It is not a round, so nothing in its files is emitted."""
        before = self.base
        self.base = position_after(before, round_id=uuid.uuid4().hex, writer=self.table.services.writer)
        if not before.offsets:
            summary = root(writer=self.base.writer, topic=before.topic, round_id=self.base.round)
        else:
            topic = next(reversed(before.offsets))
            metrics = self.meter.of_work(self.table.main, staged, all_read=True) | self.table.carried()
            summary = encode(position=self.base, topic=topic, start={}, ledger=Ledger(), metrics=metrics)
            del summary[FROM]
        return summary | {FORGET: self.request.id}, lambda ancestors: may_publish(ancestors, before)

    def _purge_dead_letters(self, places: Sequence[Place]) -> int:
        """The summary of the dead-letter table stays the same: it is level with main."""
        opened = self.table
        table = opened.dead_letters.table
        if table is None:
            raise Retryable(f"table {opened.name.dead_letters} is gone")
        opened.dead_letters.drop_branches(table)
        table.refresh()
        dead = _gone_dead_letters(opened, table, places)
        named = self.base.dead_letters.round if self.base.dead_letters else NO_DEAD_LETTERS
        summary = published_dead_letters(self.base, named) | {FORGET: self.request.id}

        def level(ancestors: Iterator[Commit]) -> bool:
            return is_level(self.base, ancestors)

        try:
            return dead.purge(lambda _: (summary, level), self._require_alone)
        except (LostRace, Conflict, Ambiguous) as error:
            raise Retryable(error.message) from None

    def _require_alone(self) -> None:
        main = self.table.main
        main.refresh()
        if not may_publish(main.ancestors(), self.base):
            raise LostRace(f"table {main.name}: another writer published first, or main was rolled back")


def _clear(opened: OpenTable) -> None:
    opened.main.refresh()
    if not opened.main.lake.is_managed:
        purge.delete(opened.main, purge.old_metadata(opened.main))
    faults.point("forget.cleared", opened.config.name)
    opened.main.set_properties({}, remove=[FORGET_LEFT])
    opened.main.refresh()


class Gone:
    """The rows to remove from a table at its current head. Every commit is refused once the head has changed.

    identified_by: the columns that identify a record. places: of each record. rows: the rows, with `FILE`; count: their number.
    tasks: Iceberg scan tasks of the files that hold them. Raises CalveError: there are too many.
    """

    def __init__(
        self, opened: OpenTable, table: Table, select: Select, identified_by: Mapping[str, Column]
    ) -> None:
        self._opened, self._table, self._select, self._head = opened, table, select, table.head
        self._name = opened.config.name
        every = table.rows.select("*", F.col(FILE))
        self.rows = select(every, GONE)
        place = F.struct(*(column.alias(name) for name, column in identified_by.items()))
        counted = self.rows.groupBy(F.col(FILE).alias("file"), place.alias("place"))
        found = counted.agg(F.count("*").alias("rows")).limit(MOST + 1).collect()
        if len(found) > MOST:
            raise CalveError(f"more than {MOST:,} records match: the column is no key of a person")
        self.places: Sequence[Place] = sorted({tuple(each["place"]) for each in found})
        self.count = sum(each["rows"] for each in found)
        self.tasks = self._files({each["file"] for each in found})

    def _files(self, of_rows: Iterable[str]) -> list[Any]:
        """Scan tasks of the data files at these paths, and of files whose rows to remove are already deleted by position."""
        tasks = list(elements(self._table.java.newScan().planFiles()))
        paths = {*of_rows}
        deleted_from = [each.file() for each in tasks if not each.deletes().isEmpty()]
        with rows_of(self._table, whole(self._table, deleted_from)) as rows:
            if rows is not None:
                # In format 3, rows read this way have no file column.
                named = rows.select("*", F.input_file_name().alias(FILE))
                paths |= {each[FILE] for each in self._select(named, GONE).select(FILE).distinct().collect()}
        return [each for each in tasks if str(each.file().location()) in paths]

    def purge(self, said: Said, require_alone: Callable[[], None]) -> int:
        """Rewrite the files that hold rows to remove, and delete every file that becomes unreachable; returns their number.

        `require_alone` refuses if another job may be writing files that its own later commit needs.
        Raises LostRace, Conflict, Ambiguous: as `glue_jobs.iceberg.staging.commit`.
        """
        table, name = self._table, self._name
        if self.tasks:
            self._replace(said)
        require_alone()
        files = purge.files_of(table)
        summary, accept = said(NOTHING)
        here = unmoved(table.head, accept)
        # Entries for removed files have bounds, which are values of rows. So their manifests are written without them.
        if stale := [each for each in data_manifests(table) if each.hasDeletedFiles()]:
            commit(table, merging_manifests(table, stale), summary, here)
        else:
            publish(table, NOTHING, summary, here)
        faults.point("forget.fenced", name)
        for tag in TAGS:
            if tag in table.refs() and table.head is not None:
                table.set_tag(tag, table.head)
        faults.point("forget.tagged", name)
        purge.expire(table)
        faults.point("forget.expired", name)
        left_behind = purge.unreachable(table, files)
        purge.delete(table, left_behind)
        faults.point("forget.swept", name)
        return len(left_behind)

    def _replace(self, said: Said) -> None:
        table, cores = self._table, self._opened.services.cores
        tasks = tasks_for(sum(each.file().fileSizeInBytes() for each in self.tasks), cores, cores)
        left = write_rest(
            table,
            self.tasks,
            lambda rows: clustered(self._select(rows, KEPT).select(*table.columns), table, tasks),
            gone=None,
        )
        faults.point("forget.staged", self._name)
        summary, accept = said(left)
        update = overwriting(table, self.tasks, left)
        commit(table, update, summary, unmoved(self._head, accept))
        faults.point("forget.committed", self._name)


def _gone_rows(opened: OpenTable, person: Person) -> Gone:
    """The person's rows in main. If one of several rows of a record matches, all of them are removed."""
    identified_by = {
        "partition": at(PARTITION),
        "offset": at(OFFSET),
        "timestamp_us": F.unix_micros(at(TIMESTAMP)),
    }
    found = Gone(opened, opened.main, person.rows, identified_by)
    if not opened.row_plan.chain.explodes:
        return found
    return Gone(opened, opened.main, _at(opened, found.places, OF_ROWS, identified_by), identified_by)


def _gone_dead_letters(opened: OpenTable, dead_letters: Table, places: Sequence[Place]) -> Gone:
    identified_by = {name: F.col(name) for name in PLACE}
    return Gone(opened, dead_letters, _at(opened, places, OF_DEAD_LETTERS, identified_by), identified_by)


def _at(
    opened: OpenTable, places: Sequence[Place], kinds: str, identified_by: Mapping[str, Column]
) -> Select:
    """Rows at these places, or all others."""
    listed = opened.services.lake.spark.createDataFrame(list(places), kinds)
    those = F.broadcast(listed.select(*(F.col(name).alias(f"calve:{name}") for name in identified_by)))
    pairs = (column.eqNullSafe(F.col(f"`calve:{name}`")) for name, column in identified_by.items())
    same = reduce(Column.__and__, pairs)
    return lambda rows, how: rows.join(those, same, how)
