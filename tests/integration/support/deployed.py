"""A deployment of calve.yaml in the embedded stack: what the CDK CLI made of it, and its data."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calve.config.spark_conf import CATALOG
from calve.names import TableName
from cli.embedded import aws
from cli.embedded.cdk import App, Outputs
from cli.progress import LineProgress, Progress
from tests.integration.support.engine import Engine

CONFIG = """\
name: {name}
tables:
  {topic}: {{topic: {topic}, freshness: 1s}}
"""
EXPORTS = """\
exports:
  weekly_trades:
    table: {topic}
    schedule: cron(0 6 ? * MON *)
    time_zone: Europe/Vilnius
    recipients: [analyst@example.com]
  weekly_sides:
    table: {topic}
    group_by: [side]
    measures: {{trades: count, volume: sum(price)}}
    schedule: cron(0 6 ? * MON *)
    time_zone: Europe/Vilnius
    recipients: [analyst@example.com, boss@example.com]
    channel: ses
    sender: reports@example.com
"""


@dataclass
class Deployed:
    """One topic of one partition, deployed as the table of the same name."""

    engine: Engine
    name: str
    topic: str
    config: Path
    progress: LineProgress
    outputs: Outputs = field(default_factory=dict)

    @property
    def app(self) -> App:
        return App(self.engine.stack, self.config)

    @property
    def job(self) -> str:
        return f"{self.name}-main"

    @property
    def bucket(self) -> str:
        return f"{self.name}-lake-{aws.ACCOUNT}-{aws.REGION}"

    @property
    def database(self) -> str:
        return self.name.replace("-", "_")

    def client(self, service: str) -> Any:
        return aws.client(service, self.engine.stack.aws_endpoint)

    def deploy(self, **context: str) -> None:
        self.outputs = replace(self.app, context=context).deploy(self.progress)

    def rows(self) -> list[tuple[int, int]]:
        """(partition, offset) of every row; none where there is no table."""
        name = TableName(self.database, self.topic)
        if self.engine.lake.load(name) is None:
            return []
        found = self.engine.spark.table(name.quoted(CATALOG)).select("_kafka.partition", "_kafka.offset")
        return sorted((row[0], row[1]) for row in found.collect())

    def files(self) -> list[str]:
        """Keys of the objects in the lake's bucket; none where there is no bucket."""
        s3 = self.client("s3")
        if all(each["Name"] != self.bucket for each in s3.list_buckets()["Buckets"]):
            return []
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]


def deployment(engine: Engine, folder: Path, name: str, *, exports: bool = False, lake: str = "") -> Deployed:
    """A topic and a calve.yaml for it, not deployed yet. lake: its own entries of YAML."""
    topic = engine.topic(partitions=1)
    config = folder / "calve.yaml"
    config.write_text((CONFIG + lake + (EXPORTS if exports else "")).format(name=name, topic=topic))
    progress = LineProgress(lambda line: print(line, file=sys.__stderr__, flush=True))
    return Deployed(engine, name, topic, config, progress)


def diff(app: App, progress: Progress) -> str:
    """The changes of a deploy, in the CDK CLI's words."""
    return "\n".join(app.run("comparing", progress, ["diff", *app.arguments()]))


def destroy(app: App, progress: Progress) -> None:
    app.destroy(progress)
