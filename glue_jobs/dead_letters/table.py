"""The dead-letter table beside a table: rejected records wait on a branch until main names their round, then they are published.

Two tables have no common transaction. Main commits first and names the round of its rejects (ADR 5).
Then this job, or after a crash the next one, publishes that round, once. `calve.table.dead_letters` makes the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.config.spark_conf import CATALOG
from calve.errors import LostRace, Retryable
from calve.names import BRANCH_PREFIX, TableName
from calve.requests.redrive import is_level
from calve.schema.columns import DEAD_LETTERS, LATER, REDRIVEN
from calve.schema.evolution import Change, column_at
from calve.table.dead_letters import (
    Leftover,
    WaitingBranch,
    dead_letters_round,
    leftover_by_offsets,
    leftover_dead_letters,
    may_release,
    recover_dead_letters,
    rounds_since,
    was_rolled_back,
)
from calve.table.position import NO_DEAD_LETTERS, DeadLetterRound, Position
from calve.table.protocol import Commit, nearest_position
from calve.table.summary import BASE, INITIALISED, ROUND, published_dead_letters, root, settings
from glue_jobs.dead_letters.records import PLACE, WITHOUT_KEY, by_record, record_of, rows_at
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.exposure import OF_DEAD_LETTERS, cover, require_own_paths, without_bounds
from glue_jobs.iceberg.rewriting import overwriting, unmoved, write_rest
from glue_jobs.iceberg.staging import (
    FILE,
    NOTHING,
    Ambiguous,
    Conflict,
    Staged,
    Validator,
    begin,
    commit,
    publish,
)
from glue_jobs.process import faults
from glue_jobs.process.java import elements

COVERED = without_bounds(DEAD_LETTERS, OF_DEAD_LETTERS)


BranchState = tuple[str | None, list[WaitingBranch]]
"""The dead-letter table before main was read: the newest published round, and the branches."""


class DeadLetterTable:
    """The dead letters of the table `main`. file_bytes: as in its `Maintenance`."""

    def __init__(self, lake: Lake, main: TableName, file_bytes: int) -> None:
        self._lake = lake
        self._file_bytes = file_bytes
        self._main = main
        self._name = main.dead_letters
        self._absent = False

    @property
    def table(self) -> Table | None:
        """The current dead-letter table; None if no record was ever rejected, or if somebody dropped it."""
        if self._absent and not self._lake.has(self._name):
            return None
        found = self._lake.load(self._name)
        self._absent = found is None
        return found

    def level_with(self, main: Position) -> Table | None:
        """As `table`. Raises Retryable: another writer is moving the dead letters."""
        table = self.table
        if table is not None and not is_level(main, table.ancestors()):
            raise Retryable(f"table {table.name}: another writer is moving the dead letters")
        return table

    def ensure(self) -> Table:
        """The dead-letter table, created if missing. Its first snapshot says that nothing was published yet."""
        if (table := self.table) is not None:
            self._evolve(table)
            return table
        summary = root(writer="", topic="", round_id=NO_DEAD_LETTERS)
        properties = settings(self._file_bytes) | {INITIALISED: "true"} | COVERED
        created = self._lake.create(self._name, DEAD_LETTERS, properties=properties, summary=summary)
        begin(created, summary)
        faults.point("dead_letters.created", self._main.table)
        return created

    def _evolve(self, table: Table) -> None:
        missing = [
            Change("add", (), each["name"], each["type"], each["doc"])
            for each in DEAD_LETTERS["fields"]
            if each["name"] in LATER and column_at(table.schema, each["name"]) is None
        ]
        if missing:
            table.evolve(missing)
            table.refresh()
            faults.point("dead_letters.evolved", self._main.table)
        cover(table, COVERED)

    def look(self) -> BranchState | None:
        """The state of the table before main is read; None if it does not exist."""
        table = self.table
        return None if table is None else (dead_letters_round(table.ancestors()), _branches(table))

    def stage_on_branch(self, staged: Staged, *, round_id: str, base: Position) -> DeadLetterRound:
        """Commit staged rejects to their own branch, invisible to readers."""
        branch = BRANCH_PREFIX + round_id
        summary = {ROUND: round_id, BASE: base.round}
        try:
            snapshot = publish(self.ensure(), staged, summary, lambda _: True, branch=branch)
        except Ambiguous as error:
            raise Retryable(error.message) from None
        return DeadLetterRound(round_id, snapshot, staged.rows)

    def recover(self, main: Position, before: BranchState | None) -> bool:
        """Bring the dead letters level with main; False if both must be read again.

        `before` was taken before `main` was read. The table is read again here, after it.
        Otherwise a round published between the two reads would look like the remains of a rollback.
        Raises Suspended: main names dead letters that do not exist (`dead_letters_lost`).
        """
        table = self.table
        if table is None or before is None:
            if table is None:
                recover_dead_letters(main, published=False, branches=())
            return table is None
        newest_before, branches = before
        newest = nearest_position(table.ancestors())
        if newest_before != (newest.round if newest else None):
            return False
        if newest is None or was_rolled_back(main, newest):
            self._undo_rollback(table, main, newest_before)
            return False
        named = main.dead_letters
        published = named is not None and newest.round == named.round
        # The snapshot of the named rejects outlives its branch until it expires.
        if named and (held := table.snapshot(named.snapshot)):
            branches.append(WaitingBranch(BRANCH_PREFIX + named.round, named.round, held.summary[BASE]))
        plan = recover_dead_letters(main, published=published, branches=branches)
        if plan.publish:
            self.publish(main)
        for branch in plan.drop:
            self._drop(table, branch.name)
        return True

    def publish(self, main: Position, staged: Staged | None = None) -> None:
        """Publish the round that main names, exactly once, and drop its branch.

        `staged`: the files, if this process wrote them. They replace a branch that was dropped meanwhile.
        Raises Retryable: it could not be published now; the next `recover` finds out why.
        """
        table, named = self.table, main.dead_letters
        if table is None or named is None:
            raise Retryable(f"table {self._name} is gone")
        if (snapshot := table.java.snapshot(named.snapshot)) is not None:
            staged = Staged.of(elements(snapshot.addedDataFiles(table.java.io())))
        if staged is None:
            raise Retryable(f"the dead letters of round {named.round} are gone from {table.name}")
        summary = published_dead_letters(main, named.round)

        def follows(ancestors: Iterator[Commit]) -> bool:
            return may_release(main, ancestors)

        try:
            if named.redriven:
                self._place_marks(table, named, staged, summary, follows)
            else:
                publish(table, staged, summary, follows)
        except (LostRace, Ambiguous) as error:
            table.refresh()
            if dead_letters_round(table.ancestors()) != named.round:
                raise Retryable(error.message) from None
        faults.point("release.appended", self._main.table)
        self._drop(table, BRANCH_PREFIX + named.round)

    def drop_branches(self, table: Table) -> None:
        """Drop all branches of rounds. These rounds can no longer be published once main is at a later round of this job."""
        for each in _branches(table):
            self._drop(table, each.name)

    def _drop(self, table: Table, branch: str) -> None:
        table.refresh()
        if branch in table.refs():
            table.drop_branch(branch)
            faults.point("branch.dropped", self._main.table)

    def _undo_rollback(self, table: Table, main: Position, newest: str | None) -> None:
        """Delete the rounds that a rolled-back main will read again, and note the newest remaining round, in one commit.

        Rounds are deleted, never offsets: another writer may have begun to replay.
        """
        left = leftover_dead_letters(main, table.ancestors()) or self._search(table, main, newest)
        summary = published_dead_letters(main, left.back_to) | left.summary
        rounds = sorted(left.rounds)
        marked = F.col(REDRIVEN).isin(*rounds)

        def unchanged(ancestors: Iterator[Commit]) -> bool:
            return dead_letters_round(ancestors) == newest

        try:
            if rounds and rows_at(table, table.head).where(marked).limit(1).collect():
                self._withdraw(table, rounds, summary, unchanged)
            elif rounds:
                self._delete_rounds(table, rounds, summary, unchanged)
            else:
                publish(table, NOTHING, summary, unchanged)
        except (LostRace, Ambiguous) as error:
            raise Retryable(error.message) from None
        faults.point("dead_letters.withdrawn", self._main.table)

    def _delete_rounds(
        self, table: Table, rounds: list[str], summary: dict[str, str], unchanged: Validator
    ) -> None:
        """Delete by file, because every round has its own files. If another engine's compaction mixed them, delete rows first."""
        condition = getattr(table.iceberg.expressions.Expressions, "in")("round", rounds)
        try:
            commit(table, table.java.newDelete().deleteFromRowFilter(condition), summary, unchanged)
        except Conflict:
            require_own_paths(table)
            listed = ", ".join(f"'{each}'" for each in rounds)
            self._lake.spark.sql(f"DELETE FROM {table.name.quoted(CATALOG)} WHERE round IN ({listed})")  # noqa: S608
            faults.point("dead_letters.deleted", self._main.table)
            table.refresh()
            publish(table, NOTHING, summary, unchanged)

    def _place_marks(
        self, table: Table, named: DeadLetterRound, marked: Staged, summary: dict[str, str], accept: Validator
    ) -> None:
        """Replace the dead letters of a redrive by the marked ones on its branch. Raises Retryable: its snapshot is gone."""
        if table.snapshot(named.snapshot) is None:
            raise Retryable(f"the marks of redrive {named.round} are gone from {table.name}")
        keys = rows_at(table, named.snapshot).where(F.col(REDRIVEN) == named.round).select(*PLACE)
        touched = rows_at(table, table.head).join(keys, [*PLACE], "left_semi")

        def left(rows: DataFrame) -> DataFrame:
            return rows.join(keys, [*PLACE], "left_anti")

        self._rewrite(table, touched, left, marked, summary, accept)

    def _withdraw(self, table: Table, rounds: list[str], summary: dict[str, str], accept: Validator) -> None:
        """Delete the dead letters of these rounds, and remove the marks of the redrives among them."""
        of_rounds, marked = F.col("round").isin(*rounds), F.col(REDRIVEN).isin(*rounds)
        touched = rows_at(table, table.head).where(of_rounds | marked)

        def left(rows: DataFrame) -> DataFrame:
            return rows.where(~of_rounds).withColumn(REDRIVEN, F.when(~marked, F.col(REDRIVEN)))

        self._rewrite(table, touched, left, NOTHING, summary, accept)

    def _rewrite(
        self,
        table: Table,
        touched: DataFrame,
        left: Callable[[DataFrame], DataFrame],
        added: Staged,
        summary: dict[str, str],
        accept: Validator,
    ) -> None:
        """Replace whole files: position deletes need their own writer, and not every reader supports equality deletes."""
        head = table.head
        paths = {row[FILE] for row in touched.select(FILE).distinct().collect()}
        files = elements(table.java.newScan().useSnapshot(head).planFiles())
        tasks = [each for each in files if str(each.file().location()) in paths]
        rest = write_rest(table, tasks, lambda rows: left(rows).select(*table.columns).coalesce(1), gone=None)
        faults.point("dead_letters.rewritten", self._main.table)
        commit(table, overwriting(table, tasks, added, rest), summary, unmoved(head, accept))

    def _search(self, table: Table, main: Position, newest: str | None) -> Leftover:
        rows = rows_at(table, table.head)
        stored = {row["round"]: row["count"] for row in rows.groupBy("round").count().collect()}
        beyond = {row["round"] for row in rows.where(_beyond(main)).select("round").distinct().collect()}
        marked = rows.where(F.col(REDRIVEN).isNotNull())
        redrives = {row[REDRIVEN]: row["count"] for row in marked.groupBy(REDRIVEN).count().collect()}
        if redrives:
            # A rollback of main removed a redrive if main holds none of its records. Otherwise it would hold all.
            main_rows = self._lake.spark.table(self._main.quoted(CATALOG))
            held = by_record(marked, record_of(main_rows, WITHOUT_KEY), "left_semi", WITHOUT_KEY)
            beyond |= redrives.keys() - {row[0] for row in held.select(REDRIVEN).distinct().collect()}
        return leftover_by_offsets(
            main,
            newest=newest,
            beyond=beyond,
            stored=stored | redrives,
            since=rounds_since(main, table.ancestors()),
        )


def _branches(table: Table) -> list[WaitingBranch]:
    return [
        WaitingBranch(name, found.summary[ROUND], found.summary[BASE])
        for name, snapshot_id in table.refs().items()
        if name.startswith(BRANCH_PREFIX) and (found := table.snapshot(snapshot_id))
    ]


def _beyond(main: Position) -> str:
    """SQL for dead letters at or beyond main's position, and all those of incarnations that main does not know."""
    inside = [
        f"(cluster_id = '{topic.cluster_id}' AND topic_id = '{topic.topic_id}' AND `partition` = {p} AND `offset` < {o})"
        for topic, offsets in main.offsets.items()
        for p, o in offsets.items()
    ]
    return f"NOT ({' OR '.join(inside)})" if inside else "true"
