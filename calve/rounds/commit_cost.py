"""The requests of a commit to object store and catalog, without retries, as a proxy counted them: Iceberg reports none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

MIB = 2**20
PART_BYTES, IN_PARTS_FROM = 32 * MIB, 48 * MIB
"""Iceberg's defaults: a larger file is uploaded in parts."""
GETS_PER_FILE = 3
"""Reads of a file that a round scans: the end, the footer, and a first piece; a large file takes more."""


@dataclass(frozen=True, slots=True)
class Requests:
    """`puts`: requests that S3 bills as PUT. `gets`: GET and the cheap HEAD. Nothing is ever listed."""

    puts: int = 0
    gets: int = 0
    catalog_calls: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.puts + other.puts, self.gets + other.gets, self.catalog_calls + other.catalog_calls
        )

    def metrics(self) -> dict[str, int]:
        return {"s3_puts": self.puts, "s3_gets": self.gets, "catalog_calls": self.catalog_calls}


LOOK = Requests(0, 1, 4)
"""Open the table, read its position, look for dead letters."""
COMMIT = Requests(2, 5, 4)
"""Write the manifest list and the table's metadata; swap the catalog entry."""
KEPT = Requests(gets=-3)
"""A table that nobody else has changed has the metadata and the manifest list that Iceberg read after the last commit."""
MANIFEST = Requests(puts=1)
DEAD_LETTERS_LOOK = Requests(0, 2, 1)
DEAD_LETTERS = Requests(7, 18, 17)
"""Commit dead letters to a branch, then to main, and drop the branch."""


@dataclass(frozen=True, slots=True)
class Held:
    """A table before the commit, by the summary of main's head: its manifests, and its data and delete files."""

    manifests: int = 0
    files: int = 0

    @classmethod
    def of(cls, summary: Mapping[str, str]) -> Held:
        manifests = sum(int(summary.get(f"manifests-{each}", 0)) for each in ("created", "kept"))
        files = sum(int(summary.get(f"total-{each}-files", 0)) for each in ("data", "delete"))
        return cls(manifests, files)

    def scan(self, files: int) -> Requests:
        return Requests(gets=self.manifests + GETS_PER_FILE * files)


def requests(
    sizes: Sequence[int],
    held: Held,
    *,
    plans: int = 0,
    read: int = 0,
    merge_at: int,
    kept: bool,
    deletes: bool,
    dead_letters: bool,
    had_dead_letters: bool,
) -> Requests:
    """The requests of a round that writes files of these `sizes`, including deletes and dead letters.

    `plans`: how often all manifests were read to find the rows of keys; `read`: files that were read for that. `merge_at`: the
    number of manifests from which Iceberg merges them. `kept`: as in `Table`.
    `deletes`, `dead_letters`: the round has some.
    `had_dead_letters`: earlier rounds had.
    """
    done = _commit(sizes, held, merge_at)
    if kept:
        done.append(KEPT)
    if had_dead_letters:
        done.append(DEAD_LETTERS_LOOK)
    if dead_letters:
        done.append(DEAD_LETTERS)
    if deletes:
        done.append(MANIFEST)
    done.append(Requests(gets=plans * held.manifests + GETS_PER_FILE * read))
    return reduce(add, done)


def requests_of_work(sizes: Sequence[int], held: Held, *, read: int, merge_at: int) -> Requests:
    """The requests of a commit that is not a round: it reads all manifests, and `read` files, which those of `sizes` replace."""
    replaced = Requests(held.manifests, held.manifests) if read else MANIFEST
    return reduce(add, [*_commit(sizes, held, merge_at), held.scan(read), replaced])


def _commit(sizes: Sequence[int], held: Held, merge_at: int) -> list[Requests]:
    # A multipart upload has one request to begin and one to end.
    puts = (1 if size < IN_PARTS_FROM else 2 + -(-size // PART_BYTES) for size in sizes)
    done = [LOOK, COMMIT, Requests(puts=sum(puts))]
    if sizes:
        done.append(MANIFEST)
    if held.manifests + 1 >= merge_at:
        done.append(Requests(puts=1, gets=held.manifests + 1))
    return done
