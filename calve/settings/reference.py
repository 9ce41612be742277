"""Generates docs/configuration.md from the model: `python -m calve.settings.reference > docs/configuration.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from calve.settings.fields import Section
from calve.settings.model import SECTIONS

HEAD = """\
# Configuration

<!-- Written by `python -m calve.settings.reference`; change `calve/settings/model.py` instead. -->

`calve.yaml` describes a deployment. It is read once, on the operator's side: every host is handed the checked and resolved
values. Unknown keys are errors, and all problems are reported at once, each with its line and its cure.

```yaml
name: trading
kafka:
  bootstrap_servers: broker-1:9092,broker-2:9092
  auth: {type: sasl_scram, secret: aws:trading/kafka}
registry:
  url: https://registry.example:8081
  secret: aws:trading/registry
lake: {database: trading, region: eu-west-1}
jobs:
  main: {worker: G.1X, workers: {min: 2, max: 6}}
alerts: {emails: [ops@example.com]}
defaults: {freshness: 60s}
tables:
  stock_trades:
    topic: stock_trades
    event_time: created_at
    partition_by: [day(created_at), "bucket(16, userid)"]
    sort_by: [symbol, price desc]
  users:
    topic: users
    freshness: 5m
exports:
  weekly_trades:
    table: stock_trades
    group_by: [symbol, side]
    measures: {trades: count, volume: sum(quantity)}
    schedule: cron(0 6 ? * MON *)
    time_zone: Europe/Vilnius
    recipients: [analyst@example.com]
```

Without `kafka`, `registry` or `lake.bucket`, the commands use the embedded stack (`calve up`). A deploy needs `kafka` and
`registry`; without `lake.bucket` it makes a bucket, and with `kafka: {msk: {create: serverless}}` a cluster.

## Overlays

`--env prod` lays `calve.prod.yaml`, beside `calve.yaml`, over it. Mappings are merged key by key; anything else is
replaced; `null` takes a value back.

## Secrets

A secret is named, never written down: `env:NAME` (an environment variable), `file:PATH` (relative to calve.yaml) or
`aws:SECRET_ID` (AWS Secrets Manager); a deployed job reads the last kind only. What stands there is a JSON object of texts:

| for | object |
| --- | --- |
| `sasl_plain`, `sasl_scram`, the registry, `rotate.admin_secret` | `{"username": "...", "password": "..."}` |
| `registry.oauth`, `publish.iceberg_rest` | `{"client_id": "...", "client_secret": "..."}` |
| `mtls`, `registry.client_certificate` | `{"certificate": "...", "key": "..."}`, both PEM, the key an unencrypted PKCS#8 one |

## Names

Topics keep Kafka's rules. Tables are `a-z`, `0-9` and `_`, at most 200, and do not end in `__dead_letters`: a table's dead
letters are kept under that name. `_kafka` is the struct column with topic, partition, offset and the other facts of the
record; no field may have its name, but `partition_by` and `sort_by` may use its fields, such as `hour(_kafka.timestamp)`.

## Times

Schedules are EventBridge's: `rate(6 hours)`, or `cron(minutes hours day-of-month month day-of-week year)`, of which one of the
two days is `?`: `cron(0 6 ? * MON *)` is every Monday at six. Time zones are names of the tz database, and their summer time is
respected: in `Europe/Vilnius` six stays six.

## Units

Durations are `ms`, `s`, `m`, `h` or `d`. Sizes are `B`, `kB`, `MB`, `GB`, `TB` (powers of 1000) or `KiB`, `MiB`, `GiB`,
`TiB` (powers of 1024).

## Keys
"""


def reference() -> str:
    """The whole page."""
    sections = ("\n".join(_section(".".join(path), section)) for path, section in SECTIONS.items())
    return "\n".join([HEAD, *(section + "\n" for section in sections)])


def _section(path: str, section: type[Section]) -> Iterator[str]:
    yield f"### `{path}`" if path else "### Top level"
    yield ""
    yield " ".join((section.__doc__ or "").split())
    if not section.model_fields:
        return
    yield ""
    yield "| key | meaning | default |"
    yield "| --- | --- | --- |"
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    for key in section.known_keys():
        field = fields[key]
        meaning, _, default = " ".join((field.description or "").split()).partition(" Default: ")
        yield f"| `{key}` | {meaning.rstrip('.')} | {'**required**' if field.is_required() else default} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
