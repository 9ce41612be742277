"""AWS's limits, each with its source, and how a template measures up to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Sizes = Iterator[tuple[str, int]]

DOCS = "https://docs.aws.amazon.com"
CLOUDFORMATION = f"{DOCS}/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"
IAM = f"{DOCS}/IAM/latest/UserGuide/reference_iam-quotas.html"
LAMBDA = f"{DOCS}/lambda/latest/dg/gettingstarted-limits.html"
CLOUDWATCH = f"{DOCS}/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html"
METRIC_ALARM = f"{DOCS}/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"
WIDGETS = f"{DOCS}/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html"
QUERY = f"{DOCS}/AmazonCloudWatch/latest/APIReference/API_MetricDataQuery.html"
LOGS = f"{DOCS}/AmazonCloudWatchLogs/latest/APIReference/API_PutMetricFilter.html"
EVENTS = f"{DOCS}/eventbridge/latest/userguide/eb-quota.html"
SCHEDULER = f"{DOCS}/scheduler/latest/APIReference/API_CreateSchedule.html"
PARAMETERS = f"{DOCS}/systems-manager/latest/APIReference/API_PutParameter.html"
GLUE = f"{DOCS}/glue/latest/dg/aws-glue-api-common.html"

# How long the values are that only a deploy knows; the longest that AWS makes.
PSEUDO = {"AWS::AccountId": 12, "AWS::Region": 14, "AWS::Partition": 3, "AWS::URLSuffix": 13}
MADE_NAME, MADE_ARN = 64, 140


def plain(value: Any) -> Any:
    """A template's value with placeholders as long as what a deploy puts in their place."""
    match value:
        case {"Ref": name}:
            return "x" * PSEUDO.get(name, MADE_NAME)
        case {"Fn::GetAtt": [_, attribute]}:
            return "x" * (MADE_ARN if str(attribute).endswith("Arn") else MADE_NAME)
        case {"Fn::ImportValue": _} | {"Fn::Select": _}:
            return "x" * MADE_ARN
        case {"Fn::Join": [separator, parts]}:
            return separator.join(map(str, map(plain, parts)))
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case _:
            return value


def compact(value: Any) -> str:
    return json.dumps(plain(value), separators=(",", ":"))


def each(template: Json, kind: str) -> Iterator[tuple[str, Json]]:
    """The id and the properties of the resources of a type; a kind that ends in `::` is of a family of types."""
    for id, resource in template["Resources"].items():
        if resource["Type"] == kind or (kind.endswith("::") and resource["Type"].startswith(kind)):
            yield id, resource.get("Properties", {})


def length_of(kind: str, *keys: str) -> Callable[[Json], Sizes]:
    """How long a text is, or its JSON."""

    def sizes(template: Json) -> Sizes:
        for id, properties in each(template, kind):
            found: Any = properties
            for key in keys:
                found = (found or {}).get(key)
            if found is not None:
                found = plain(found)
                yield id, len(found if isinstance(found, str) else compact(found))

    return sizes


def count_of(kind: str, key: str) -> Callable[[Json], Sizes]:
    def sizes(template: Json) -> Sizes:
        for id, properties in each(template, kind):
            yield id, len(properties.get(key, ()))

    return sizes


def section(name: str) -> Callable[[Json], Sizes]:
    def sizes(template: Json) -> Sizes:
        yield name, len(template.get(name, ()))

    return sizes


def body(template: Json) -> Sizes:
    yield "template", len(json.dumps(template, indent=1).encode())  # as the CDK writes it


def inline_policies(template: Json) -> Sizes:
    """Of a role, all together."""
    for id, properties in each(template, "AWS::IAM::Role"):
        documents = [one["PolicyDocument"] for one in properties.get("Policies", ())]
        for _, policy in each(template, "AWS::IAM::Policy"):
            if {"Ref": id} in policy["Roles"]:
                documents.append(policy["PolicyDocument"])
        yield id, sum(len(compact(document)) for document in documents)


def managed_policies(template: Json) -> Sizes:
    """Attached to a role."""
    for id, properties in each(template, "AWS::IAM::Role"):
        policies = (policy for _, policy in each(template, "AWS::IAM::ManagedPolicy"))
        attached = sum({"Ref": id} in policy.get("Roles", ()) for policy in policies)
        yield id, len(properties.get("ManagedPolicyArns", ())) + attached


def environment(template: Json) -> Sizes:
    for id, properties in each(template, "AWS::Lambda::Function"):
        variables = properties.get("Environment", {}).get("Variables", {})
        yield id, sum(len(name) + len(str(plain(value)).encode()) for name, value in variables.items())


def watched_s(template: Json) -> Sizes:
    for id, alarm in each(template, "AWS::CloudWatch::Alarm"):
        yield id, alarm["Period"] * alarm["EvaluationPeriods"]


def filters_of_a_group(template: Json) -> Sizes:
    counted: dict[str, int] = {}
    for _, found in each(template, "AWS::Logs::MetricFilter"):
        group = compact(found["LogGroupName"]) + json.dumps(found["LogGroupName"])
        counted[group] = counted.get(group, 0) + 1
    yield from counted.items()


def dimensions(template: Json) -> Sizes:
    for id, found in each(template, "AWS::Logs::MetricFilter"):
        (made,) = found["MetricTransformations"]
        yield id, len(made.get("Dimensions", ()))


def widgets(template: Json) -> Iterator[tuple[str, Json]]:
    for id, found in each(template, "AWS::CloudWatch::Dashboard"):
        for number, widget in enumerate(json.loads(plain(found["DashboardBody"]))["widgets"]):
            yield f"{id} {number}", widget["properties"]


def alarms_of_a_widget(template: Json) -> Sizes:
    for id, widget in widgets(template):
        yield id, len(widget.get("alarms", ()))


def metrics_of_a_widget(template: Json) -> Sizes:
    for id, widget in widgets(template):
        yield id, len(widget.get("metrics", ()))


def metrics_of_a_dashboard(template: Json) -> Sizes:
    yield "dashboard", sum(size for _, size in metrics_of_a_widget(template))


def queries(template: Json) -> Sizes:
    for id, widget in widgets(template):
        for metric in widget.get("metrics", ()):
            if isinstance(metric[0], dict):
                yield id, len(metric[0]["expression"])


@dataclass(frozen=True)
class Limit:
    """`sizes`: of everything in a template that the limit is about, with its name."""

    what: str
    most: int
    source: str
    sizes: Callable[[Json], Sizes]


LIMITS = (
    Limit("resources of a stack", 500, CLOUDFORMATION, section("Resources")),
    Limit("outputs of a stack", 200, CLOUDFORMATION, section("Outputs")),
    Limit("parameters of a stack", 200, CLOUDFORMATION, section("Parameters")),
    Limit("bytes of a template", 1_000_000, CLOUDFORMATION, body),
    Limit("characters of a managed policy", 6_144, IAM, length_of("AWS::IAM::ManagedPolicy", "PolicyDocument")),
    Limit("characters of a role's inline policies", 10_240, IAM, inline_policies),
    Limit("managed policies of a role", 10, IAM, managed_policies),
    Limit("characters of a trust policy", 2_048, IAM, length_of("AWS::IAM::Role", "AssumeRolePolicyDocument")),
    Limit("name of a managed policy", 128, IAM, length_of("AWS::IAM::ManagedPolicy", "ManagedPolicyName")),
    Limit("bytes of a function's variables", 4_096, LAMBDA, environment),
    Limit("name of a function", 64, LAMBDA, length_of("AWS::Lambda::Function", "FunctionName")),
    # A custom resource's properties reach its function by an asynchronous invocation.
    Limit("bytes of a custom resource", 256_000, LAMBDA, length_of("Custom::")),
    Limit("name of an alarm", 255, METRIC_ALARM, length_of("AWS::CloudWatch::Alarm", "AlarmName")),
    Limit("text of an alarm", 1_024, METRIC_ALARM, length_of("AWS::CloudWatch::Alarm", "AlarmDescription")),
    Limit("metrics of an alarm", 10, CLOUDWATCH, count_of("AWS::CloudWatch::Alarm", "Metrics")),
    Limit("seconds that an alarm looks at", 86_400, METRIC_ALARM, watched_s),
    Limit("alarms of a widget", 100, WIDGETS, alarms_of_a_widget),
    Limit("metrics of a widget", 500, CLOUDWATCH, metrics_of_a_widget),
    Limit("metrics of a dashboard", 2_500, CLOUDWATCH, metrics_of_a_dashboard),
    Limit("characters of a query", 2_048, QUERY, queries),
    Limit("filters of a log group", 100, LOGS, filters_of_a_group),
    Limit("dimensions of a filter", 3, LOGS, dimensions),
    Limit("name of a log group", 512, LOGS, length_of("AWS::Logs::LogGroup", "LogGroupName")),
    Limit("characters of a pattern", 2_048, EVENTS, length_of("AWS::Events::Rule", "EventPattern")),
    Limit("targets of a rule", 5, EVENTS, count_of("AWS::Events::Rule", "Targets")),
    Limit("name of a schedule", 64, SCHEDULER, length_of("AWS::Scheduler::Schedule", "Name")),
    Limit("name of a group of schedules", 64, SCHEDULER, length_of("AWS::Scheduler::ScheduleGroup", "Name")),
    Limit("bytes of a schedule's input", 256_000, SCHEDULER, length_of("AWS::Scheduler::Schedule", "Target", "Input")),
    Limit("bytes of a parameter", 4_096, PARAMETERS, length_of("AWS::SSM::Parameter", "Value")),
    Limit("name of a job", 255, GLUE, length_of("AWS::Glue::Job", "Name")),
    Limit("text of a job", 2_048, GLUE, length_of("AWS::Glue::Job", "Description")),
)  # fmt: skip
RULES_OF_A_BUS = 300
"""Of an account, EVENTS."""
NAME_OF_A_STACK = 128


def broken(template: Json) -> list[str]:
    """Each limit that the template is beyond."""
    return [
        f"{limit.what}: {size:,} of {limit.most:,} ({name}), {limit.source}"
        for limit in LIMITS
        for name, size in limit.sizes(template)
        if size > limit.most
    ]
