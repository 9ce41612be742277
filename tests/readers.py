"""Which readers see the rows of which tables: `python -m tests.readers` prints the table of docs/query.md.

`tests/integration/tables/test_readers.py` fills each cell: it fails if a reader sees other rows, and if a fault is gone.
"""

from __future__ import annotations

import sys

from tests.combinations import MODES
from tests.integration.support.readers import OF_DELTA, OF_ICEBERG

FORMATS = (2, 3)


def table() -> str:
    """The table, and the faults below it."""
    faults = {name: each.fault for name, each in OF_ICEBERG.items()}
    faults |= {f"{name}, by the Delta log": "" for name in OF_DELTA}
    numbers = {fault: number for number, fault in enumerate(filter(None, faults.values()), 1)}
    lines = [f"| reader | format | {' | '.join(MODES)} |", f"| --- | --- |{' --- |' * len(MODES)}"]
    for name, fault in faults.items():
        cell = f"same ({numbers[fault]})" if fault else "same"
        lines += [f"| {name} | {version} | {' | '.join([cell] * len(MODES))} |" for version in FORMATS]
    return "\n".join([*lines, "", *(f"{number}. {fault}." for fault, number in numbers.items())]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
