"""What a commit asked of the object store and the catalog, by what it did: each action's requests as a proxy has counted them.

Iceberg tells nobody how many requests it makes; `tests/integration/test_receipt.py` compares these figures with those that
pass a proxy. Repetitions of requests that failed are not in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from calve.config.job import Aggregate, Deduplicate, Mode

MIB = 2**20
PART_BYTES, IN_PARTS_FROM = 32 * MIB, 48 * MIB
"""Iceberg's own defaults: a file that is larger is written in parts."""
GETS_PER_FILE = 3
"""Of a file whose rows a round looks through: the end, the footer, and a first piece; a large file takes more."""


@dataclass(frozen=True, slots=True)
class Requests:
    """`puts` are what S3 bills as such, `gets` with the cheap questions for a size (HEAD); nothing is ever listed."""

    puts: int = 0
    gets: int = 0
    catalog_calls: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.puts + other.puts, self.gets + other.gets, self.catalog_calls + other.catalog_calls
        )

    def metrics(self) -> dict[str, int]:
        """As they stand in `calve.metrics`."""
        return {"s3_puts": self.puts, "s3_gets": self.gets, "catalog_calls": self.catalog_calls}


LOOK = Requests(0, 1, 4)
"""The table is opened, its position read, dead letters are looked for."""
COMMIT = Requests(2, 5, 4)
"""The list of manifests and the table's metadata are written; the entry in the catalog is swapped."""
MANIFEST = Requests(puts=1)
LETTERS_LOOK = Requests(0, 2, 1)
LETTERS = Requests(7, 18, 17)
"""Dead letters are committed to a branch, then to main, and the branch is dropped."""
DELETES = Requests(5, 13, 0)
"""Rows that are replaced are looked for in a copy of the table's metadata; the deletes have a manifest of their own."""
FIRSTS = Requests(0, 4, 2)
"""Keys are looked for that the table has already."""
TOTALS = Requests(0, 7, 5)
"""Totals are read that the records change."""


@dataclass(frozen=True, slots=True)
class Held:
    """A table before the commit, by the summary of main's head: its manifests, and its files with those of deletes."""

    manifests: int = 0
    files: int = 0

    @classmethod
    def of(cls, summary: Mapping[str, str]) -> Held:
        manifests = sum(int(summary.get(f"manifests-{each}", 0)) for each in ("created", "kept"))
        files = sum(int(summary.get(f"total-{each}-files", 0)) for each in ("data", "delete"))
        return cls(manifests, files)

    @property
    def scan(self) -> Requests:
        """All of its files are looked through."""
        return Requests(gets=self.manifests + GETS_PER_FILE * self.files)


def requests(
    sizes: Sequence[int], held: Held, mode: Mode | None, *, merge_at: int, letters: bool, had_letters: bool
) -> Requests:
    """Those of a round that writes files of these `sizes`, those of deletes and dead letters among them.

    `merge_at`: from so many manifests on, Iceberg writes them as one. `letters`: there are dead letters in the round,
    `had_letters`: there were some before.
    """
    done = [LOOK, COMMIT, Requests(puts=sum(map(_puts, sizes)))]
    if sizes:
        done.append(MANIFEST)
    if had_letters:
        done.append(LETTERS_LOOK)
    if letters:
        done.append(LETTERS)
    if held.files:
        done += _looks(held, mode)
    if held.manifests + 1 >= merge_at:
        done.append(Requests(puts=1, gets=held.manifests + 1))
    return reduce(add, done)


def requests_of_work(sizes: Sequence[int], held: Held, *, read: int, merge_at: int) -> Requests:
    """Those of a commit that is no round: all manifests are looked into, `read` files are read, and files of these `sizes` take
    the place of some, so that the manifests which name these are written anew.
    """
    done = [LOOK, COMMIT, Requests(puts=sum(map(_puts, sizes)))]
    done.append(Requests(gets=held.manifests + GETS_PER_FILE * read))
    done.append(Requests(held.manifests, held.manifests) if read else MANIFEST)
    if sizes:
        done.append(MANIFEST)
    if held.manifests + 1 >= merge_at:
        done.append(Requests(puts=1, gets=held.manifests + 1))
    return reduce(add, done)


def _looks(held: Held, mode: Mode | None) -> list[Requests]:
    """What a mode looks for in the rows that the table has."""
    match mode:
        case None:
            return []
        case Deduplicate():
            return [FIRSTS, held.scan]
        case Aggregate():
            return [TOTALS, held.scan, DELETES, held.scan]
        case _:
            return [DELETES, held.scan]


def _puts(size: int) -> int:
    """An upload in parts has a request to begin and one to end."""
    return 1 if size < IN_PARTS_FROM else 2 + -(-size // PART_BYTES)
