"""How large what a table keeps about itself becomes: `python -m bench.limits`; the figures of docs/limits.md."""

from __future__ import annotations

import gzip
import json
import random
import sys

from calve.table.position import Ledger, Position, TopicKey
from calve.table.summary import encode

TOPIC = TopicKey("lkc-4xqvn2", "mZ6dE0VNSNyZpY0V1b3y0A")
PARTITIONS = (10, 100, 1_000, 10_000)
SNAPSHOTS = 100
RECORDS = 500  # of a round, in each partition


def summaries(partitions: int, rng: random.Random) -> list[dict[str, str]]:
    """The summaries of a busy table's snapshots, with offsets of ten digits."""
    offsets = {n: rng.randrange(10**9, 10**10) for n in range(partitions)}
    made = []
    for number in range(SNAPSHOTS):
        before, offsets = offsets, {n: o + rng.randrange(2 * RECORDS) for n, o in offsets.items()}
        read = sum(offsets.values()) - sum(before.values())
        made.append(
            encode(
                position=Position({TOPIC: offsets}, f"{number:032x}", "f" * 32, "stock_trades"),
                topic=TOPIC,
                start={TOPIC: before},
                ledger=Ledger(span=read, consumed=read, applied=read, rows_appended=read),
                metrics={"lag_records": 0, "lag_s": 1.25},
            )
        )
    return made


def main() -> None:
    """A row for each number of partitions."""
    rng = random.Random(1)  # noqa: S311 figures, not secrets
    out = sys.stdout.write
    out(
        "| partitions | one summary | 100 of them in the metadata file | the same, gzip |\n| --- | --- | --- | --- |\n"
    )
    for partitions in PARTITIONS:
        made = summaries(partitions, rng)
        text = json.dumps(made).encode()
        sizes = (len(json.dumps(made[-1])), len(text), len(gzip.compress(text)))
        out(f"| {partitions:,} | " + " | ".join(f"{size / 1000:,.1f} kB" for size in sizes) + " |\n")


if __name__ == "__main__":
    main()
