"""The database of examples/database beside the running stack, with some changes a second, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import random
import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path

from cli.embedded.processes import HOST, termination_as_exit
from cli.embedded.stack import current
from tests.standins.database.server import NAME, USER, database

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "database"

parser = argparse.ArgumentParser(prog="python -m tests.standins.database", description=__doc__)
parser.add_argument("--changes", type=int, default=5, help="how many changes a second")
options = parser.parse_args()

change = runpy.run_path(str(EXAMPLE / "generate.py"))["change"]
stack = current(ROOT)
if stack is None:
    sys.exit("the embedded stack is down. Start it: calve up")
with termination_as_exit(), suppress(KeyboardInterrupt):
    print("starting PostgreSQL and Debezium ...")  # noqa: T201 a script
    with (
        database(stack, json.loads((EXAMPLE / "connector.json").read_text())) as made,
        made.connection() as connection,
    ):
        connection.cursor().execute((EXAMPLE / "shop.sql").read_text())
        dice = random.Random()
        change(connection, dice, 200)
        made.start_connector()
        print(f"database: postgresql://{USER}@{HOST}:{made.port}/{NAME}\nstop: Ctrl-C")  # noqa: T201
        while True:
            time.sleep(1)
            change(connection, dice, options.changes)
