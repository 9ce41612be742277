"""What an account, a cluster and a registry still hold of a throw-away deployment, found by its name and by its tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calve.errors import CalveError
from cli.prove.scene import Scene
from lambdas.aws import tolerating

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
