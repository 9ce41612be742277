"""All loops of a job, each in a thread of its own; further ones may begin while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from py4j.protocol import Py4JNetworkError
from pyspark import InheritableThread

from calve.errors import CalveError, Fatal
from glue_jobs.loop import State, TableLoop, first_line


@dataclass(slots=True)
class Loops:
    """Runs loops until all are over; a `Fatal` of one of them stops all."""

    stop: threading.Event
    tables: list[TableLoop] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _errors: list[CalveError] = field(default_factory=list)

    def start(self, loop: TableLoop) -> None:
        """Begin to keep a table."""
        self.tables.append(loop)
        self.run(loop.run, f"table {loop.target.name}", name=loop.target.name.table)

    def run(self, work: Callable[[], object], what: str, *, name: str) -> None:
        """Do other work beside the tables'; `what` it is of, where it ends by an error."""
        thread = InheritableThread(target=self._guarded, args=(work, what), name=name)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> dict[str, State]:
        """Wait until all loops are over, those among them that began meanwhile; returns the state of each table.

        Raises:
            Fatal: the job as a whole cannot go on, for instance because credentials were refused; all loops are stopped.
            Retryable: work beside the tables' could not be done; the tables are as far as they came without it.
        """
        for thread in self._threads:  # a list that grows under its iterator
            thread.join()
        if self._errors:
            raise self._errors[0]
        return {str(loop.target.name): loop.state for loop in self.tables}

    def _guarded(self, work: Callable[[], object], what: str) -> None:
        try:
            work()
        except Fatal as error:
            self._end(error)
        except CalveError as error:
            self._errors.append(error)
        except (Py4JNetworkError, ConnectionError):
            self._end(Fatal("Spark's JVM has ended", fix="read its log: was its memory too small?"))
        except Exception as error:  # noqa: BLE001 a loop must not end in silence
            self._end(Fatal(f"the loop of {what} ended: {first_line(error)}"))

    def _end(self, error: Fatal) -> None:
        self._errors.insert(0, error)
        self.stop.set()
