"""A throw-away deployment: its configuration, its topics, the waits for what happens in it, and its end.

Its folder `.calve/prove/NAME` is made first and removed last, so a later command finds what is left. An account, a cluster and a
registry show what they still hold of it by its name and by its tag.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from calve.config.deployment import Deployment
from calve.config.job import Job
from calve.errors import CalveError
from cli.account import Account
from cli.config import load_target
from cli.console import Console
from cli.embedded.cdk import App, Outputs
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import Stack
from cli.kafka import Cluster, client_properties
from cli.run.datagen.plan import Fates, Plan, in_turn
from cli.run.datagen.produce import Target, produce, registry_client
from lambdas.aws import tolerating
from lambdas.lake.adoption import key_of

PREFIX = "calve-prove-"
TRADES, USERS, EXPORT = "trades", "users", "trades_of_a_day"
OF_THE_USER = ("kafka", "registry", "network")
"""The sections that come from calve.yaml."""
FILES = (("kafka", "auth"), ("registry",))
PATIENCE_S, PATIENCE_HERE_S, POLL_S = 1200.0, 120.0, 5.0
STILL_S = 3600.0
"""The longest that CloudFormation may work on after an interruption: the 15 minutes of a function, some of them in turn."""

_T = TypeVar("_T")


def new_name() -> str:
    return f"{PREFIX}{secrets.token_hex(3)}"


def configuration(name: str, given: Mapping[str, Any], folder: Path, mail: str) -> str:
    """The calve.yaml of a throw-away deployment. given: that of the user, in `folder`."""
    own: dict[str, Any] = {section: given[section] for section in OF_THE_USER if given.get(section)}
    for path in FILES:
        place = own
        for key in path:
            place = place.get(key) or {}
        place.pop("rotate", None)  # a throw-away deployment does not change the keys of others
        if file := place.get("ca_file"):
            place["ca_file"] = str((folder / file).resolve())
    if region := (given.get("lake") or {}).get("region"):
        own["lake"] = {"region": region}
    export = {
        "table": TRADES,
        "group_by": ["symbol", "side"],
        "measures": {"trades": "count"},
        "schedule": "cron(0 6 1 1 ? *)",
        "wait": "1m",
        "recipients": [mail],
    }
    own |= {
        "name": name,
        "defaults": {"freshness": "30s"},
        "jobs": {"main": {"workers": {"min": 2, "max": 2}}},
        "tables": {each: {"topic": f"{name}-{each}"} for each in (TRADES, USERS)},
        "exports": {EXPORT: export},
    }
    return yaml.safe_dump(own, sort_keys=False)


@dataclass(frozen=True, slots=True)
class Note:
    """Where a throw-away deployment is. endpoint: the emulator's."""

    region: str
    account: str
    endpoint: str | None = None


@dataclass
class Scene:
    """A throw-away deployment. stack: the embedded one that holds it; None: it is in an AWS account.

    heard: the messages that its topics have sent. link: out of the mail. key: the lake's, known once the destroy has begun.
    """

    name: str
    account: Account
    number: str
    deployment: Deployment
    stack: Stack | None
    console: Console
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    outputs: Outputs = field(default_factory=dict)
    heard: list[dict[str, Any]] = field(default_factory=list)
    link: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, name: str, console: Console) -> Scene:
        """The deployment whose folder is there."""
        deployment, stack = load_target(folder_of(name) / "calve.yaml")
        account = Account.of(stack, deployment.region)
        return cls(name, account, account.id(), deployment, stack, console)

    @property
    def day(self) -> date:
        """Of all records: the day before, in UTC."""
        return self.began.date() - timedelta(days=1)

    @property
    def patience_s(self) -> float:
        return PATIENCE_HERE_S if self.stack else PATIENCE_S

    @property
    def job_name(self) -> str:
        return f"{self.name}-main"

    @property
    def job(self) -> Job:
        """With the place of its lake."""
        settings = self.deployment.jobs[0].settings
        region, endpoint = self.account.region, self.account.endpoint
        warehouse = self.output("lake", "Warehouse")
        return replace(
            settings, lake=replace(settings.lake, warehouse=warehouse, region=region, endpoint=endpoint)
        )

    @property
    def config(self) -> Path:
        return folder_of(self.name) / "calve.yaml"

    @property
    def app(self) -> App:
        context = {
            "delete_data": f"yes-delete-{self.name}"
        }  # from the first deploy on, so a destroy leaves nothing
        if self.stack:
            return replace(App(self.stack, self.config), context=context)
        return App(None, self.config, context=context, region=self.account.region)

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(self.deployment.jobs[0].settings.kafka, self.account.region)

    def output(self, stack: str, key: str) -> str:
        return self.outputs[f"{self.name}-{stack}"][key]

    def client(self, service: str) -> Any:
        return self.account.client(service)

    def note(self) -> None:
        """Write down where it will be."""
        noted = Note(self.account.region, self.number, self.account.endpoint)
        (folder_of(self.name) / "note.json").write_text(json.dumps(asdict(noted)))

    def wait(self, what: str, look: Callable[[], _T | None], *, seconds: float | None = None) -> _T:
        """The first answer that is not empty. Raises CalveError when the patience is over."""
        limit_s = self.patience_s if seconds is None else seconds
        end = time.monotonic() + limit_s
        with self.console.progress().task(what):
            while not (found := look()):
                if time.monotonic() > end:
                    raise CalveError(f"{what}: not in {limit_s / 60:.0f} minutes")
                time.sleep(1.0 if self.stack else POLL_S)
        return found

    @property
    def plans(self) -> tuple[tuple[Plan, Plan], tuple[Plan, Plan]]:
        """Of each topic: the records before the deploy, which needs topics with schemas, and those after it."""
        midnight = datetime.combine(self.day, datetime.min.time(), UTC)
        period = (midnight, midnight + timedelta(days=1))
        trades, users = (f"{self.name}-{each}" for each in (TRADES, USERS))
        return (
            (
                Plan(trades, 200, seed=1, partitions=2, period=period),
                Plan(trades, 2_000, seed=2, partitions=2, period=period, malformed=in_turn(16)),
            ),
            (
                Plan(users, 100, dataset="users", seed=1, partitions=1, period=period),
                Plan(users, 400, dataset="users", seed=2, partitions=1, period=period),
            ),
        )

    def produce(self, turn: int) -> None:
        settings = self.deployment.jobs[0].settings
        for plans in self.plans:
            plan = plans[turn]
            with self.console.progress().task(f"producing {plan.topic}"):
                produce(plan, Target(settings.kafka, settings.registry, self.account.region))

    @property
    def fates(self) -> dict[str, Fates]:
        """By table, what must become of all records."""
        found = {}
        for table, plans in zip((TRADES, USERS), self.plans, strict=True):
            all_of = [plan.fates() for plan in plans]
            rejected = sum((Counter(each.dead_lettered) for each in all_of), Counter())
            found[table] = Fates(sum(each.applied for each in all_of), dict(rejected), 0)
        return found

    @property
    def applied(self) -> int:
        return sum(each.applied for each in self.fates.values())

    def destroy(self) -> None:
        """Delete stacks, queue, topics and subjects, whatever of them is there."""
        self.wait("waiting for CloudFormation", self._is_still, seconds=STILL_S)
        self.key = self.key or key_of(self.client("kms"), f"alias/{self.name}-lake")
        self.app.destroy(self.console.progress())
        sqs = self.client("sqs")
        for url in sqs.list_queues(QueueNamePrefix=self.name).get("QueueUrls", []):
            sqs.delete_queue(QueueUrl=url)
        settings = self.deployment.jobs[0].settings
        topics = [plans[0].topic for plans in self.plans]
        admin = AdminClient(client_properties(settings.kafka, self.account.region))
        for future in admin.delete_topics(topics).values():
            with suppress(
                KafkaException
            ):  # one that was never made; the list of remains tells of one that stays
                future.result()
        for topic in topics:
            registry = registry_client(settings.registry, topic)
            for for_good in (False, True):
                with suppress(SchemaRegistryError):
                    registry.delete_subject(f"{topic}-value", permanent=for_good)

    def _is_still(self) -> bool:
        states = dict(self.stacks())
        return not any(s.endswith("_IN_PROGRESS") and s != "REVIEW_IN_PROGRESS" for s in states.values())

    def stacks(self) -> Iterator[tuple[str, str]]:
        """Name and state of each stack of it."""
        for page in self.client("cloudformation").get_paginator("describe_stacks").paginate():
            for each in page["Stacks"]:
                if each["StackName"].startswith(f"{self.name}-") and each["StackStatus"] != "DELETE_COMPLETE":
                    yield each["StackName"], each["StackStatus"]


def folder_of(name: str) -> Path:
    return Layout(project_root()).state / "prove" / name


def left() -> dict[str, Note]:
    """Every deployment that has a folder."""
    found = {}
    for file in sorted(folder_of("").glob(f"{PREFIX}*/note.json")):
        found[file.parent.name] = Note(**json.loads(file.read_text()))
    return found


@contextmanager
def held(name: str) -> Iterator[bool]:
    """While the block runs, other commands know that the deployment is in use. False: another one uses it."""
    with (folder_of(name) / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def forget(name: str) -> None:
    shutil.rmtree(folder_of(name), ignore_errors=True)


KINDS = {
    "stacks": ("cloudformation", "describe_stacks", "Stacks", "StackName"),
    "buckets": ("s3", "list_buckets", "Buckets", "Name"),
    "databases": ("glue", "get_databases", "DatabaseList", "Name"),
    "jobs": ("glue", "get_jobs", "Jobs", "Name"),
    "security configurations": (
        *("glue", "get_security_configurations"),
        *("SecurityConfigurations", "Name"),
    ),
    "functions": ("lambda", "list_functions", "Functions", "FunctionName"),
    "roles": ("iam", "list_roles", "Roles", "RoleName"),
    "policies": ("iam", "list_policies", "Policies", "PolicyName"),
    "rules": ("events", "list_rules", "Rules", "Name"),
    "groups of schedules": ("scheduler", "list_schedule_groups", "ScheduleGroups", "Name"),
    "topics": ("sns", "list_topics", "Topics", "TopicArn"),
    "queues": ("sqs", "list_queues", "QueueUrls", ""),
    "tables of DynamoDB": ("dynamodb", "list_tables", "TableNames", ""),
    "secrets": ("secretsmanager", "list_secrets", "SecretList", "Name"),
    "parameters": ("ssm", "describe_parameters", "Parameters", "Name"),
    "alarms": ("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    "dashboards": ("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    "log groups": ("logs", "describe_log_groups", "logGroups", "logGroupName"),
    "aliases of keys": ("kms", "list_aliases", "Aliases", "AliasName"),
    "workgroups": ("athena", "list_work_groups", "WorkGroups", "Name"),
}
"""By kind: service, operation, the list in its answer, and the name in an item; empty: the item is the name."""
TAGGED = ("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", "ResourceARN")
ONLY = {"list_policies": {"Scope": "Local"}}
DYING = ("PendingDeletion", "PendingReplicaDeletion")


def remains(scene: Scene) -> dict[str, list[str]]:
    """By kind, the names of what is left. A key that is being deleted is not among them."""
    found = {kind: sorted(_named(scene, *listed)) for kind, listed in KINDS.items()}
    found["keys"] = [scene.key] if scene.key and _key(scene)["KeyState"] not in DYING else []
    topics = {plans[0].topic for plans in scene.plans}
    found["topics of Kafka"] = sorted(topics.intersection(scene.cluster.topic_names()))
    return {kind: names for kind, names in found.items() if names}


def nothing_left(scene: Scene) -> str:
    """Wait until the account shows nothing any more: some of its lists are late."""
    seen: dict[str, list[str]] = {}

    def empty() -> bool:
        seen.clear()
        seen.update(remains(scene))
        return not seen

    try:
        scene.wait("looking for what is left", empty)
    except CalveError:
        told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in seen.items())
        raise CalveError(f"left: {told}", fix="calve prove --clean") from None
    said = f"nothing of {len(KINDS) + 2} kinds has the name; {_tagged(scene)}"
    if scene.key is None:
        return said
    return f"{said}; the key {scene.key} is deleted on {_key(scene)['DeletionDate']:%Y-%m-%d}"


def _key(scene: Scene) -> dict[str, Any]:
    answer: dict[str, Any] = scene.client("kms").describe_key(KeyId=scene.key)["KeyMetadata"]
    return answer


def _tagged(scene: Scene) -> str:
    """What still has the tag. It decides nothing: AWS lists deleted resources for hours, and dying keys for days."""
    client, pages = scene.client(TAGGED[0]), []
    with tolerating("AccessDeniedException"):
        wanted = [{"Key": "calve:deployment", "Values": [scene.name]}]
        for page in client.get_paginator(TAGGED[1]).paginate(TagFilters=wanted):
            pages += [each[TAGGED[3]].split(":", 2)[2] for each in page[TAGGED[2]]]
        return f"by its tag: {', '.join(pages) or 'nothing'}"
    return "its tag was not looked for: access denied"


def _named(scene: Scene, service: str, operation: str, key: str, field: str) -> Iterator[str]:
    client, more = scene.client(service), ONLY.get(operation, {})
    if client.can_paginate(operation):
        pages = client.get_paginator(operation).paginate(**more)
    else:
        pages = [getattr(client, operation)(**more)]
    for page in pages:
        for each in page.get(key, []):
            name = str(each[field] if field else each)
            gone = service == "cloudformation" and each["StackStatus"] == "DELETE_COMPLETE"
            if not gone and (scene.name in name or scene.name.replace("-", "_") in name):
                yield name
