"""Dead letters that a redrive selects, counted: what they are today, in each incarnation of the topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.position import Ledger, TopicKey
from glue_jobs.decode import REJECT, SIZE
from glue_jobs.letter_records import LETTER

PRESENT = "calve:present"
"""A column beside those of a record: whether main has the letter's record."""


@dataclass(frozen=True, slots=True)
class Share:
    """The selected letters of one incarnation of the topic, counted."""

    topic: TopicKey
    fresh: int = 0
    present: int = 0
    size_bytes: int = 0
    refused: tuple[tuple[str, int], ...] = ()

    @property
    def ledger(self) -> Ledger:
        refused = dict(self.refused)
        return Ledger(
            selected=self.fresh + self.present + sum(refused.values()),
            redriven=self.fresh,
            present=self.present,
            refused=refused,
            rows_appended=self.fresh,
        )


def counted(judged: DataFrame) -> list[Share]:
    """The shares of records with `LETTER`, `REJECT`, `PRESENT` and `SIZE`."""
    letter = F.col(LETTER)
    keys = (letter["cluster_id"].alias("cluster"), letter["topic_id"].alias("topic"), REJECT, PRESENT)
    sums = judged.groupBy(*keys).agg(F.count(F.lit(1)).alias("letters"), F.sum(SIZE).alias("size"))
    shares: dict[TopicKey, Share] = {}
    for row in sums.collect():
        topic = TopicKey(row["cluster"], row["topic"])
        share = shares.setdefault(topic, Share(topic))
        if row[REJECT] is not None:
            found = replace(share, refused=(*share.refused, (row[REJECT], row["letters"])))
        elif row[PRESENT]:
            found = replace(share, present=row["letters"])
        else:
            found = replace(share, fresh=row["letters"], size_bytes=int(row["size"] or 0))
        shares[topic] = found
    return [_merged(share) for share in shares.values()]


def _merged(share: Share) -> Share:
    """A reason that letters with and without a row in main share is one reason."""
    refused: Counter[str] = Counter()
    for reason, count in share.refused:
        refused[reason] += count
    return replace(share, refused=tuple(sorted(refused.items())))
