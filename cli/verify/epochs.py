"""Records read as their round says that it read them: with which schema where no frame names one, with keys, with which steps.

That of a record which came back from the dead letters is the redrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

import pyarrow as pa

from calve.position import Offsets
from cli.verify.claim import Round
from cli.verify.decoding import Decoding
from cli.verify.topic import Records

ReadWith = Mapping[str, str] | None
"""None: nothing says it, so it is as calve.yaml says now."""


class Epochs:
    """Stands where a `Decoder` does, with one for each way of reading.

    `decoder_for` makes them; it gives None for a way that is not known any more.
    """

    def __init__(self, rounds: Sequence[Round], decoder_for: Callable[[ReadWith], Decoding | None]) -> None:
        self._rounds = rounds
        self._redrives: dict[str, ReadWith] = {}
        self._redriven: Mapping[tuple[int, int], str] = {}
        self._decoder_for = decoder_for
        self._made: dict[tuple[tuple[str, str], ...] | None, Decoding | None] = {}

    def knowing(self, redrives: Sequence[Round], redriven: Mapping[tuple[int, int], str]) -> Epochs:
        """The same, where records came back from the dead letters; `redriven`: the round of the redrive, by place."""
        found = copy(self)
        found._redrives = {each.round: each.read_with for each in redrives}
        found._redriven = redriven
        return found

    def rows(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        """As `Decoder.rows`."""
        return self._read(records, lambda decoder, mine: decoder.rows(mine))

    def tombstones(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        """As `Decoder.tombstones`."""
        return self._read(records, lambda decoder, mine: decoder.tombstones(mine))

    def _read(
        self,
        records: Records,
        read: Callable[[Decoding, Records], tuple[list[pa.RecordBatch], list[tuple[int, str]]]],
    ) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        batches: list[pa.RecordBatch] = []
        refused: list[tuple[int, str]] = []
        for decoder, mine in self._decoders(records):
            found, unread = read(decoder, records.select(mine))
            batches += found
            refused += [(mine[place], reason) for place, reason in unread]
        return batches, refused

    def judge(self, records: Records) -> list[str | None]:
        """As `Decoder.judge`."""
        judged: dict[int, str | None] = {}
        for decoder, mine in self._decoders(records):
            judged |= zip(mine, decoder.judge(records.select(mine)), strict=True)
        return [judged[place] for place in range(len(records))]

    def provable_from(self) -> Offsets:
        """Where the offsets begin, by partition, that no round read with a schema that is not known any more."""
        return {
            partition: offset
            for each in reversed(self._rounds)
            if self._decoder(each.read_with) is None
            for partition, offset in each.to.get(each.topic, {}).items()
            if not self._made_anew(each, partition, offset)
        }

    def _made_anew(self, each: Round, partition: int, to: int) -> bool:
        """Whether all that a round read of a partition was read once more, in a way that is known."""
        first = each.start.get(each.topic, {}).get(partition)
        if first is None:
            return False
        anew = next((other for other in self._rounds if other.remakes(partition, first)), None)
        return (
            anew is not None and anew.remade[partition][1] >= to and self._decoder(anew.read_with) is not None
        )

    def _decoders(self, records: Records) -> Iterable[tuple[Decoding, list[int]]]:
        """The decoders that the records need, with the places of these."""
        places: dict[int, tuple[Decoding, list[int]]] = {}
        for place in range(len(records)):
            decoder = self._decoder_at(records, place)
            places.setdefault(id(decoder), (decoder, []))[1].append(place)
        return places.values()

    def _decoder_at(self, records: Records, place: int) -> Decoding:
        partition, offset = records.partitions[place], records.offsets[place]
        redrive = self._redriven.get((partition, offset))
        anew = next((each for each in self._rounds if each.remakes(partition, offset)), None)
        if anew is not None:
            read_with: ReadWith = anew.read_with
        elif redrive is None:
            read_with = next(
                (each.read_with for each in self._rounds if each.covers(partition, offset)), None
            )
        else:
            read_with = self._redrives.get(redrive)
        found = self._decoder(read_with) or self._decoder(None)
        if found is None:
            raise AssertionError("what calve.yaml says now is known")
        return found

    def _decoder(self, read_with: ReadWith) -> Decoding | None:
        key = None if read_with is None else tuple(sorted(read_with.items()))
        if key not in self._made:
            self._made[key] = self._decoder_for(read_with)
        return self._made[key]
