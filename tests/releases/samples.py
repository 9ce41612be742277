"""What this release stores, by kind (`tests.releases.reading`): one or more texts of each, as its own code writes them."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from calve.config.job import Start
from calve.config.publishing import OpenCatalog, Snowflake, Warehouse
from calve.names import TableName
from calve.outputs.announcement import EventSource
from calve.outputs.emitting import Emitted
from calve.requests import forget, redrive, requests, time_travel
from calve.requests.requests import Pause
from calve.settings import load_deployment
from calve.table.position import DeadLetterRound, Ledger, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import encode, root
from lambdas.links import Link, Part
from lambdas.tokens import Keys, sign

CONFIGURATION = Path(__file__).with_name("calve.yaml")
AT = "2026-11-23T06:00:00+00:00"
TOPIC = TopicKey("lkc-4xqvn2", "mZ6dE0VNSNyZpY0V1b3y0A")
BEFORE = TopicKey("lkc-4xqvn2", "qA6dE0VNSNyZpY0V1b3y0B")
LEDGER = Ledger(
    span=120,
    consumed=100,
    gaps=15,
    lost=5,
    applied=90,
    deduplicated=2,
    filtered=3,
    filtered_by_steps=1,
    dead_lettered=4,
    rows_appended=93,
    rows_deleted=6,
    rows_filtered=1,
    rejected={"malformed": 3, "bad_magic": 1},
    skipped={"null_value": 1},
    skipped_schemas={"17": 1},
    filtered_schemas={"18": 2},
)
LETTERS = DeadLetterRound("r2", 4711, 4, previous="r1")
POSITION = Position({TOPIC: {0: 40, 1: 80}, BEFORE: {0: 7}}, "r2", "w1", "stock_trades")
UPSERT = json.dumps({"mode": "upsert", "key": [1], "order_by": None})
TOTALS = json.dumps({"mode": "aggregate", "by": [["symbol", "string"]], "measures": [], "window": None})
KEYS = Keys("k2", {"k1": bytes(range(32)), "k2": bytes(range(32, 64))})


def samples() -> dict[str, list[str]]:
    """The texts by kind; they are the same whenever the same release makes them."""
    deployment = load_deployment(CONFIGURATION)
    (export,) = deployment.exports
    assert deployment.publish
    assert deployment.publish.iceberg_rest
    places, moment = Start("offsets", offsets={0: 12, 1: 7}), Start("timestamp", 1_790_000_000_000)
    return {
        "backfill_request": [time_travel.BackfillRequest("b1", AT, "ann", places, moment).to_json()],
        "commit_message": [json.dumps({"detail": _announced()})],
        "emitted": [Emitted.at(POSITION).to_json()],
        "export": [export.to_json()],
        "export_manifest": [json.dumps({"export": json.loads(export.to_json())})],
        "forget_entries": [
            forget.to_json([forget.Entry("f1", AT, AT, 3, 1, 2, 4, 1, 0, {str(TOPIC): {"0": [[3, 4]]}})])
        ],
        "forget_found": [
            forget.Found(
                "f2", 3, 1, 2, {str(TOPIC): {"0": [[3, 4]]}}, since={str(TOPIC): {0: 0, 1: 5}}
            ).to_json()
        ],
        "forget_request": [
            forget.Request("f2", AT, (forget.Condition("userid", "User_1"),)).to_json(),
            forget.Request("f3", AT, (forget.Condition("userid", "c2VhbGVk"),), sealed="2026a").to_json(),
        ],
        "history": list(requests.Entry("h1", AT, "rollback", "back", "ann").property().values()),
        "iceberg_rest": [deployment.publish.iceberg_rest.to_json()],
        "job": [each.settings.to_json() for each in deployment.jobs],
        "ledger": [LEDGER.to_json()],
        "link": [
            json.dumps({"keys": KEYS.to_json(), "token": sign(KEYS, "AAECAwQFBgcICQoLDA0ODw", 1_900_000_000)})
        ],
        "link_row": [json.dumps(_link().to_item())],
        "masking": [_masking()],
        "pause": [Pause("p1", AT, "ann", "why", "2999-01-01T00:00:00+00:00").to_json()],
        "position": [json.dumps(each) for each in _summaries()],
        "publish_state": [json.dumps(STATE)],
        "redrive_request": [redrive.Request("r1", AT, "malformed", 17, AT, AT).to_json()],
        "redrive_result": [redrive.Result("r1", AT, 4, 2, 1, {"malformed": 1}).to_json()],
        "snowflake": [_snowflake().to_json()],
        "travel_request": [time_travel.RollbackRequest("t1", AT, "ann", "rewind", 4711).to_json()],
    }


STATE = {
    "target": {"S": "snowflake"},
    "table": {"S": "trading.users"},
    "state": {"S": "synced"},
    "since_ms": {"N": "1763877600000"},
    "uuid": {"S": "6f1c"},
    "metadata_location": {"S": "s3://lake/users/metadata/3.metadata.json"},
    "snapshot_id": {"S": "5"},
    "lag_s": {"N": "1.25"},
}


def _summaries() -> list[dict[str, str]]:
    """A table's first snapshot, then a position of each format, the newest last."""
    lettered = replace(POSITION, dead_letters=LETTERS)
    redriven = replace(POSITION, dead_letters=replace(LETTERS, redriven=True), redrives=2)
    positions = [lettered, redriven, replace(lettered, mode=UPSERT), replace(lettered, mode=TOTALS)]
    return [
        root(writer="w0", topic="stock_trades", round_id="r0"),
        *(
            encode(position=each, topic=TOPIC, start={TOPIC: {0: 0, 1: 0}}, ledger=LEDGER, metrics=METRICS)
            for each in positions
        ),
    ]


METRICS = {"lag_records": 12, "lag_s": 1.5, "announced": 3}


def _announced() -> object:
    summary = _summaries()[1]
    speaker = EventSource("trading", "main", TableName("trading", "stock_trades"))
    found = {"table_uuid": "6f1c", "metadata_location": "s3://lake/stock_trades/metadata/3.metadata.json"}
    return speaker.committed(Commit(5, 4, summary, 1763877600.0, 3, "append"), found, again=False).detail


def _masking() -> str:
    versions = [
        ("2026a", "2026-01-01T00:00:00Z", KEYS.keys["k1"]),
        ("2027a", "2027-01-01T00:00:00Z", KEYS.keys["k2"]),
    ]
    return json.dumps(
        {"keys": [{"id": id_, "from": since, "key": b64encode(key).decode()} for id_, since, key in versions]}
    )


def _link() -> Link:
    return Link(
        id="AAECAwQFBgcICQoLDA0ODw",
        key_id="k2",
        export="weekly_trades",
        manifest="exports/weekly_trades/manifest-1.json",
        parts=(Part("exports/weekly_trades/part-1.csv", 15, 512, "ab" * 32),),
        recipient="cd" * 32,
        created_at=1_763_877_600,
        expires_at=1_900_000_000,
        max_downloads=50,
        title="Weekly trades",
        window="9-15 November 2026",
        time_zone="Europe/Vilnius",
        rows=15,
        complete=True,
    )


def _snowflake() -> Snowflake:
    return Snowflake(
        account="ORG-ACCOUNT",
        url="https://org-account.snowflakecomputing.com",
        user="CALVE_ADMIN",
        secret="aws:trading/snowflake",
        admin_role="CALVE",
        database="TRADING",
        schema="PUBLIC",
        warehouse=Warehouse("TRADING"),
        reader="TRADING_READER",
        publisher="TRADING_PUBLISHER",
        service_user="TRADING_SERVICE",
        volume="TRADING_VOLUME",
        integration="TRADING_INTEGRATION",
        catalog="open_catalog",
        open_catalog=OpenCatalog("https://open.example", "lake", "aws:trading/open"),
    )
