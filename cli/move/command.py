"""The command `calve move`."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from calve.errors import CalveError
from calve.requests.requests import Entry, Move
from calve.table.protocol import nearest_position
from cli import lake
from cli.act.requests import Kind, OpenedTable, YesOption, person, stamp
from cli.config import Common, TableArgument, kafka_in
from cli.move.copies import Search, Side

MOVE = Kind(Move, "move of", Entry.of, "nothing was changed in", fix="correct that, then ask again")
FormerOption = Annotated[
    Path,
    typer.Option(
        "--from-cluster",
        metavar="FILE",
        help="A file with `kafka:` of the former cluster: the former calve.yaml will do.",
    ),
]


def move(
    table: TableArgument,
    *,
    former: FormerOption,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have a table go on with a copy of its topic on the cluster that calve.yaml names now.

    Finds the place by the records of both topics: none is lost, none is doubled. A place that they do not prove is refused. One
    commit changes the cluster.

    Example:
      calve move stock_trades --from-cluster former.yaml
    """
    kafka = kafka_in(former, given)
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    opened.refuse_second(MOVE)
    position = nearest_position(lake.ancestors(opened.main))
    if position is None or not position.offsets:
        why = "has read nothing yet" if position else "has no snapshot that says which offsets it holds"
        fix = f"run the job once: calve ingest {table}; it begins at `start`, or proves the position"
        raise CalveError(f"{opened.name} {why}", fix=fix)
    region = opened.job.lake.region
    left = Side.of(kafka, region, position.topic)
    copy = Side.of(opened.job.kafka, region, opened.settings.topic)
    if copy.topic.key in position.offsets:
        raise CalveError(
            f"{opened.name} reads topic {copy.topic.key} already",
            fix="let `kafka:` in calve.yaml name the new cluster, deploy, then ask again",
        )
    if left.topic.key != position.newest:
        raise CalveError(
            f"{opened.name} reads topic {position.newest}, and {former} leads to topic {left.topic.key}",
            fix="name the cluster that the table was read from",
        )
    with opened.console.progress().task(f"comparing topic {copy.topic.name} on both clusters"):
        places = Search(left, copy, position.offsets[position.newest]).places()
    rows = [asdict(each) for each in places]
    opened.console.table("offsets", rows)
    offsets = {each.partition: each.offset for each in places}
    ids = str(left.topic.key), str(copy.topic.key)
    request = Move(uuid.uuid4().hex, stamp(now), person(), position.round, *ids, offsets)
    question = f"Move {opened.name} from cluster {left.topic.key.cluster_id} to {copy.topic.key.cluster_id}?"
    entry = opened.ask(
        MOVE, request, question=question, look_at="the offsets", yes=yes, more={"offsets": rows}
    )
    opened.console.say(f"{opened.name}: {entry.told}. The job goes on there with its next round.")
