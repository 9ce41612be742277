"""Mutated values, one after the other, for a machine to read: `python -m tests.mutations COUNT SEED FORMAT`.

Run with NUMBA_BOUNDSCHECK=1 every place that it reads or writes is looked at. What lies behind a value in the buffer must not
matter: they are read once more in another order. What it may take is bounded: a value that makes it take more ends the process.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from random import Random

from calve.decoding.decode_plan import decoding, first_columns
from calve.decoding.formats import Top
from calve.errors import CalveError
from calve.schema.wire import CONFLUENT, Schema
from glue_jobs.engines.columnar.decoder import Decoder
from tests import random_json, random_protobuf
from tests.columnar import records_of
from tests.random_avro import Schemas, Values, mutated

CHUNK = 2_000
MOST_BYTES = 3 * 2**30
"""Of address space, of which libraries take most."""


def written(kind: str, random: Random) -> tuple[str, Callable[[], bytes]]:
    """A random schema, and a writer of its values."""
    match kind:
        case "JSON":
            schema, make = random_json.Schemas(random).top()
            return json.dumps(random_json.partly(schema, random)), lambda: json.dumps(make()).encode()
        case "PROTOBUF":
            text, write = random_protobuf.Schemas(random).top()
            return text, lambda: b"\x00" + write() + write()
    record, values = Schemas(random).record(), Values(random)
    return json.dumps(record), lambda: values.of(record)


def decoder(kind: str, random: Random) -> tuple[Decoder, list[bytes]]:
    """One of a random schema, and some of its values."""
    while True:
        text, write = written(kind, random)
        versions = [Schema(7, text, kind)]
        top = Top(rest=random.choice([None, "rest"]) if kind == "JSON" else None)
        try:
            columns = first_columns(versions, "it", top)
        except CalveError:
            continue
        found = decoding(columns, versions, top=top)
        if found.writers:
            return Decoder(found, columns), [CONFLUENT.frame(7) + write() for _ in range(20)]


def main() -> None:
    count, random, kind = int(sys.argv[1]), Random(int(sys.argv[2])), sys.argv[3]
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    good = 0
    for _ in range(0, count, CHUNK):
        made, values = decoder(kind, random)
        chunk = [mutated(random.choice(values), random) for _ in range(CHUNK)]
        decoded, backwards = made.decode(records_of(chunk)), made.decode(records_of(chunk[::-1]))
        for each in decoded.columns.columns:
            each.validate(full=kind == "JSON")
        if sorted([*decoded.good, *decoded.rejected]) != list(range(CHUNK)):
            raise AssertionError("a record is lost")
        if decoded.good.tolist() != (CHUNK - 1 - backwards.good[::-1]).tolist():
            raise AssertionError("a value is judged by what lies behind it")
        good += decoded.good.size
    sys.stdout.write(f"{good} of {count} are good\n")


if __name__ == "__main__":
    main()
