"""Which readers see the rows of which tables: `python -m tests.readers` prints the table of docs/query.md.

`tests/integration/tables/test_readers.py` fills each cell: it fails if a reader sees other rows, and if a fault is gone.
"""

from __future__ import annotations

import sys

from tests.combinations import MODES
from tests.integration.support.readers import FAULTS, OF_DELTA, OF_ICEBERG, SERVERS

FORMATS = (2, 3)


def table() -> str:
    """The table, and the faults below it."""
    numbers = {fault.words: number for number, fault in enumerate(FAULTS.values(), 1)}

    def cell(name: str, mode: str, version: int) -> str:
        fault = FAULTS.get(name)
        if fault is None or not fault.met(mode, version):
            return "same"
        return f"{fault.verdict} ({numbers[fault.words]})"

    lines = [f"| reader | format | {' | '.join(MODES)} |", f"| --- | --- |{' --- |' * len(MODES)}"]
    for name in (*OF_ICEBERG, *SERVERS, *(f"{each}, by the Delta log" for each in OF_DELTA)):
        for version in FORMATS:
            cells = " | ".join(cell(name, mode, version) for mode in MODES)
            lines.append(f"| {name} | {version} | {cells} |")
    return "\n".join([*lines, "", *(f"{number}. {words}." for words, number in numbers.items())]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
