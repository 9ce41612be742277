"""The rules of docs/modes.md for records of a key, followed record by record: the oracle of `glue_jobs.index`."""

from __future__ import annotations

from typing import NamedTuple

NULL = -(2**63)
"""The rank of a null order."""


class Record(NamedTuple):
    key: int
    partition: int
    offset: int
    timestamp: int
    order: int | None
    deletes: bool

    @property
    def rank(self) -> int:
        return NULL if self.order is None else self.order


def by_the_rules(records: list[Record], *, newest: bool) -> set[Record]:
    """Read each partition in offset order, then compare what they would keep."""
    kept: dict[tuple[int, int], Record] = {}
    for each in sorted(records, key=lambda record: record.offset):
        place = each.key, each.partition
        before = kept.get(place)
        if before is None or (newest and (each.deletes or before.deletes or each.rank >= before.rank)):
            kept[place] = each
    best: dict[int, Record] = {}
    for each in sorted(kept.values(), key=lambda record: (record.rank, record.timestamp, record.partition)):
        best[each.key] = each if newest else best.get(each.key, each)
    return set(best.values())


def apart(records: list[Record], rows: dict[int, list[int]], window: int) -> set[Record]:
    """Those that are a window away from all rows of their key; adds their timestamps to `rows`.

    Partitions are merged by the greatest timestamp that each has reached among the records of the key.
    """
    reached: dict[tuple[int, int], int] = {}
    ranked = []
    for each in sorted(records, key=lambda record: record.offset):
        place = each.key, each.partition
        reached[place] = max(reached.get(place, each.timestamp), each.timestamp)
        ranked.append((reached[place], each.partition, each.offset, each))
    kept = set()
    for *_, each in sorted(ranked):
        if all(abs(each.timestamp - at) >= window for at in rows[each.key]):
            rows[each.key].append(each.timestamp)
            kept.add(each)
    return kept


class Keyed:
    """A table by key, as its rounds make it: the record of each key's row."""

    def __init__(self, *, newest: bool, window: int | None = None) -> None:
        self.rows: dict[int, Record] = {}
        self.kept: set[Record] = set()
        self._newest, self._window = newest, window
        self._times: dict[int, list[int]] = {}

    def read(self, records: list[Record]) -> None:
        """A round."""
        if self._window is not None:
            for each in records:
                self._times.setdefault(each.key, [])
            self.kept |= apart(records, self._times, self._window)
            return
        deleted = {each.key for each in records if each.deletes}
        for each in by_the_rules(records, newest=self._newest):
            held = self.rows.get(each.key)
            if each.deletes:
                self.rows.pop(each.key, None)
            elif held is None or (self._newest and (each.rank >= held.rank or each.key in deleted)):
                self.rows[each.key] = each
        self.kept = set(self.rows.values())
