"""The steps `filter` and `sql`: Spark SQL defines what a query means, so Spark runs it on batch after batch.

A query fails as a whole: a failing batch is halved until the failing rows are found. Spark's error text holds values, so it is
not shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN, quote
from calve.schema.change_events import UNAVAILABLE, UPDATES
from calve.schema.columns import CHANGE
from cli.verify.columns import (
    BYTES,
    TEXTS,
    column_at,
    column_hashes,
    has_changes,
    is_list,
    places_of,
    systems,
)
from cli.verify.formats.fields import LEFT_OUT, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED, LACKS_VALUE = "step_failed", "value_unavailable"
"""A step that computes with a value that an update of a database lacks, for which Debezium writes a placeholder, rejects it."""
PLACE = "calve:place"
OWN = {SYSTEM_COLUMN: PLACE, CHANGE["name"]: "calve:change"}
"""The system columns of a query's row: the query may rename them, or not select them."""
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
}
EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
AT_ONCE = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
"""The rule that computes an inner query before the outer one prunes its columns."""
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers, which print error texts."""
SELECT = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*select\b(?:\s+all\b)?", re.IGNORECASE | re.DOTALL)
TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|\w+|[()]""", re.DOTALL)


class Reads(NamedTuple):
    """The columns that WHERE and the select list compute with."""

    condition: frozenset[str]
    computed: frozenset[str]


class Queries:
    """A Spark session, started at the first query, beside or without other sessions of this process."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: SparkSession | None = None
        self._known: dict[tuple[str, str], Reads] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def where(self, rows: pa.RecordBatch, condition: str, *, tombstones: bool) -> Outcome:
        """Rows for which a condition is true, and all tombstones."""
        if tombstones:
            return rows, {}
        return self._made(rows, filtering(condition))

    def select(self, rows: pa.RecordBatch, query: str, *, tombstones: bool) -> Outcome:
        """The query's rows; of a tombstone, whatever WHERE says, each column that can be computed."""
        found = SELECT.match(query)
        if found is None:
            raise CalveError(f"the query does not begin with SELECT: {query.strip()[:40]}")
        rest = query[found.end() :].rstrip("; \n")
        own = ", ".join(f"{name} as {quote(OWN[name])}" for name in OWN if name in systems(rows.schema))
        text = f"{found[0]} {own}, {rest}"
        if tombstones:
            return self._column_by_column(rows, _without_where(text)), {}
        if not has_changes(rows.schema):
            return self._made(rows, text)
        lacks = lacking(rows, self.reads(rows, query).computed)
        if not pc.any(lacks).as_py():
            return self._made(rows, text)
        asked = rows.filter(lacks)
        _, without = self._made(asked, _alone(text, ""))
        lost = pc.invert(pc.is_in(places_of(rows), pa.array(without, pa.int64())))
        made, others = self._made(rows.filter(pc.invert(lacks)), text)
        return rejected(rows, pc.and_(lacks, lost), (made, others | without))

    def reads(self, rows: pa.RecordBatch, text: str) -> Reads:
        """The columns that a query reads."""
        place = str(rows.schema), text
        if place not in self._known:
            self._known[place] = self._analysed(rows.slice(0, 0), text)
        return self._known[place]

    def _analysed(self, rows: pa.RecordBatch, text: str) -> Reads:
        with self._source(rows) as session:
            plan: Any = session.sql(text)._jdf.queryExecution().analyzed()
        values = [_child(each) for each in _each(plan.projectList())]
        computed = [each for each in values if each.getClass().getSimpleName() != "AttributeReference"]
        below = plan.child()
        filters = below.getClass().getSimpleName() == "Filter"
        return Reads(_names([below.condition()] if filters else []), _names(computed))

    def _made(self, rows: pa.RecordBatch, text: str) -> Outcome:
        made, failing = self._by_halves(rows, text)
        made, before, failed = _with_place(made), places_of(rows), places_of(failing)
        left_out = before.filter(pc.invert(pc.is_in(before, pa.concat_arrays([places_of(made), failed]))))
        return made, dict.fromkeys(left_out.to_pylist(), LEFT_OUT) | dict.fromkeys(failed.to_pylist(), FAILED)

    def _column_by_column(self, rows: pa.RecordBatch, text: str) -> pa.RecordBatch:
        made, failing = self._by_halves(rows, text)
        if failing.num_rows:
            own = systems(rows.schema)
            names = [name for name in made.schema.names if name not in {*own, *OWN.values()}]
            made = pa.RecordBatch.from_pydict(
                {name: rows.column(name) for name in own}
                | {name: self._column(rows, name, text) for name in names}
            )
        return _with_place(made)

    def _column(self, rows: pa.RecordBatch, name: str, text: str) -> Any:
        """A column, null if it fails; Spark leaves out the sources of the others."""
        alone = _alone(text, f", {quote(name)}")
        with self._active() as session:
            session.conf.set(EXCLUDED_RULES, AT_ONCE)
            try:
                found, _ = self._by_halves(rows, alone)
            finally:
                session.conf.unset(EXCLUDED_RULES)
        computed = _with_place(found)
        return computed.column(name).take(pc.index_in(places_of(rows), places_of(computed)))

    def _by_halves(self, rows: pa.RecordBatch, text: str) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The query's rows of rows on which it succeeds, and the failing rows."""
        if (made := self._run(rows, text)) is not None:
            return made, rows.slice(0, 0)
        if rows.num_rows == 1:
            nothing = self._run(rows.slice(0, 0), text)
            if nothing is None:
                raise CalveError("a query fails without any record")
            return nothing, rows
        middle = rows.num_rows // 2
        halves = [self._by_halves(half, text) for half in (rows.slice(0, middle), rows.slice(middle))]
        made, failing = zip(*halves, strict=True)
        return pa.concat_batches(made), pa.concat_batches(failing)

    def _run(self, rows: pa.RecordBatch, text: str) -> pa.RecordBatch | None:
        """The query's rows; None if it fails on one of them.

        Raises:
            CalveError: the query does not fit these columns, or Spark itself fails.
        """
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, PySparkException

        with self._source(rows) as session:
            try:
                made = session.sql(text).toArrow()
            except AnalysisException as error:
                raise CalveError(
                    f"a query of the steps cannot be run on the columns of the records ({error.getCondition()})",
                    fix="use the steps and the schemas with which the job filled the table",
                ) from None
            except PySparkException:
                return None
            except Py4JJavaError as error:
                if _is_fault(error.java_exception):
                    raise CalveError("Spark failed while it ran a query of the steps") from None
                return None
        batches = made.to_batches()
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], made.schema)

    @contextmanager
    def _source(self, rows: pa.RecordBatch) -> Iterator[SparkSession]:
        """The active session, in which `source` has these rows."""
        from pyspark.sql.pandas.types import from_arrow_schema

        with self._active() as session:
            source = pa.Table.from_batches([rows])
            schema = from_arrow_schema(source.schema, prefer_timestamp_ntz=True)
            session.createDataFrame(source, schema=schema).createOrReplaceTempView("source")
            yield session

    @contextmanager
    def _active(self) -> Iterator[SparkSession]:
        """The session as the active one for the block; other sessions are restored behind it."""
        from pyspark.sql import SparkSession

        before = SparkSession.getActiveSession()
        if self._session is None:
            self._session = self._start()
        _activate(self._session, self._session)
        try:
            yield self._session
        finally:
            _activate(self._session, before)

    def _start(self) -> SparkSession:
        from pyspark import SparkContext
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession

        from cli.spark import bare_session

        for each in map(PySparkLogger.getLogger, LOGGERS):
            self._stack.callback(setattr, each, "disabled", each.disabled)
            each.disabled = True
        if SparkContext._active_spark_context is None:
            session = self._stack.enter_context(bare_session())
            session.sparkContext.setLogLevel("OFF")
        else:
            session = SparkSession.builder.getOrCreate().newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        return session


def _activate(session: SparkSession, active: SparkSession | None) -> None:
    """Make a session of the same Spark as `session` the active one of this thread; None: no session."""
    from pyspark.sql import SparkSession

    SparkSession._activeSession = active
    sessions: Any = session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    if active is None:
        sessions.clearActiveSession()
    else:
        sessions.setActiveSession(active._jsparkSession)


def _with_place(made: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the system columns of their source rows."""
    for name, own in OWN.items():
        if own in made.schema.names:
            made = made.drop_columns(name) if name in made.schema.names else made
            made = made.rename_columns([name if each == own else each for each in made.schema.names])
    return made


def filtering(condition: str) -> str:
    """The query of a filter."""
    return f"select * from source where ({condition}\n)"  # noqa: S608 a part of a query


def _alone(text: str, name: str) -> str:
    """A query of the place, and one more column, of another query."""
    return f"select {quote(PLACE)}{name} from ({text}\n)"  # noqa: S608 parts of a query


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala collection."""
    found = sequence.iterator()
    while found.hasNext():
        yield found.next()


def _child(named: Any) -> Any:
    return named.child() if named.getClass().getSimpleName() == "Alias" else named


def _names(trees: Iterable[Any]) -> frozenset[str]:
    return frozenset(str(each.name()) for tree in trees for each in _each(tree.references()))


def _without_where(query: str) -> str:
    """A SELECT without WHERE, its last clause."""
    depth = 0
    for token in TOKEN.finditer(query):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0 and token[0].lower() == "where":
            return query[: token.start()]
    return query


def _is_fault(thrown: Any) -> bool:
    """Whether the JVM failed, for example without memory, and not an expression."""
    while thrown is not None:
        if str(thrown.getClass().getName()).endswith("Error"):
            return True
        thrown = thrown.getCause()
    return False


def lacking(rows: pa.RecordBatch, names: Collection[str]) -> Any:
    """True for updates that lack a value of these columns."""
    found = pa.array([False] * rows.num_rows, pa.bool_())
    if not has_changes(rows.schema):
        return found
    updates = pc.equal(column_at(rows, f"{CHANGE['name']}.op"), UPDATES)
    wanted = {name.lower() for name in names}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        blank = blank_of(column.type)
        if blank is not None and name.lower() in wanted:
            lacks = pa.array([each == blank for each in column.to_pylist()], pa.bool_())
            found = pc.or_(found, pc.and_(updates, lacks))
    return found


def rejected(rows: pa.RecordBatch, lost: Any, outcome: Outcome) -> Outcome:
    """The outcome of the other rows, and the rows that `lost` marks as rejects."""
    made, without = outcome
    return made, without | dict.fromkeys(places_of(rows).filter(lost).to_pylist(), LACKS_VALUE)


def blanks_in(columns: pa.Schema) -> dict[int, int]:
    """Index of a column that may lack values -> the hash of its placeholder."""
    blanks = {place: (blank_of(each.type), each.type) for place, each in enumerate(columns)}
    return {
        place: column_hashes([pa.array([blank], kind)])[0][0].as_py()
        for place, (blank, kind) in blanks.items()
        if blank is not None
    }


def blank_of(kind: Any) -> Any:
    """What an update has in place of a value of this type that it leaves out; None: updates have all values."""
    if kind in TEXTS:
        return UNAVAILABLE
    if kind in BYTES:
        return UNAVAILABLE.encode()
    if is_list(kind):
        return [UNAVAILABLE] if kind.value_type in TEXTS else None
    texts = pa.types.is_map(kind) and kind.key_type in TEXTS and kind.item_type in TEXTS
    return [(UNAVAILABLE, UNAVAILABLE)] if texts else None
