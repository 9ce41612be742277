"""The emulator as the stacks need it: what `cli/embedded/ministack_plus.py` adds, and that any other gap is loud."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cli.embedded import aws
from cli.embedded.stack import Stack
from tests.integration.support import rights
from tests.integration.support.engine import until


class Services:
    """Clients by service, and names that no other test has."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.name = f"t{uuid.uuid4().hex[:12]}"
        self.role = rights.role(stack, rights.EVERYTHING, service="scheduler.amazonaws.com")

    def __getattr__(self, service: str) -> Any:
        return aws.client(service, self._stack.aws_endpoint)

    def once(self, target: str, given: object) -> str:
        """A schedule for the next second; returns when that is, as the scheduler writes it."""
        at = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%S")
        self.scheduler.create_schedule(
            Name=self.name,
            ScheduleExpression=f"at({at})",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": target, "RoleArn": self.role, "Input": json.dumps(given)},
            ActionAfterCompletion="DELETE",
        )
        return f"{at}Z"

    def create(self, resources: dict[str, Any]) -> str:
        """Make a stack; returns its state in the end."""
        self.cloudformation.create_stack(
            StackName=self.name, TemplateBody=json.dumps({"Resources": resources})
        )
        until(lambda: not self.state().endswith("IN_PROGRESS"))
        return self.state()

    def state(self) -> str:
        return str(self.cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]["StackStatus"])


@pytest.fixture
def services(stack: Stack) -> Services:
    return Services(stack)


def test_a_schedule_tells_its_target_when_it_was_due(services: Services) -> None:
    queue = services.sqs.create_queue(QueueName=services.name)["QueueUrl"]
    arn = f"arn:aws:sqs:{aws.REGION}:{aws.ACCOUNT}:{services.name}"
    due = services.once(arn, {"scheduled_at": "<aws.scheduler.scheduled-time>"})
    (message,) = services.sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=10)["Messages"]
    assert json.loads(message["Body"]) == {"scheduled_at": due}
    assert services.scheduler.list_schedules(NamePrefix=services.name)["Schedules"] == []


def test_a_schedule_whose_role_has_no_right_invokes_nothing(services: Services, stack: Stack) -> None:
    queue = services.sqs.create_queue(QueueName=services.name)["QueueUrl"]
    services.role = rights.role(stack, rights.allow("sqs:SendMessage", "*"))  # trusts Lambda alone
    services.once(f"arn:aws:sqs:{aws.REGION}:{aws.ACCOUNT}:{services.name}", {})
    until(lambda: services.scheduler.list_schedules(NamePrefix=services.name)["Schedules"] == [])
    assert "Messages" not in services.sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1)


def test_the_runs_of_a_glue_job_are_listed_newest_first(services: Services) -> None:
    services.glue.create_job(Name=services.name, Role=services.role, Command={"Name": "gluestreaming"})
    started = [services.glue.start_job_run(JobName=services.name)["JobRunId"] for _ in range(3)]
    listed = [run["Id"] for run in services.glue.get_job_runs(JobName=services.name)["JobRuns"]]
    assert listed == started[::-1]


def test_a_security_configuration_and_a_schedules_time_zone_are_made(services: Services) -> None:
    encryption = {"S3Encryptions": [{"S3EncryptionMode": "SSE-S3"}]}
    schedule = {
        "Name": services.name,
        "ScheduleExpression": "cron(0 6 ? * MON *)",
        "ScheduleExpressionTimezone": "Europe/Vilnius",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": f"arn:aws:sqs:{aws.REGION}:{aws.ACCOUNT}:q", "RoleArn": services.role},
    }
    resources = {
        "Security": {
            "Type": "AWS::Glue::SecurityConfiguration",
            "Properties": {"Name": services.name, "EncryptionConfiguration": encryption},
        },
        "Schedule": {"Type": "AWS::Scheduler::Schedule", "Properties": schedule},
    }
    assert services.create(resources) == "CREATE_COMPLETE"
    made = services.glue.get_security_configuration(Name=services.name)["SecurityConfiguration"]
    assert made["EncryptionConfiguration"] == {"S3Encryption": encryption["S3Encryptions"]}
    zone = services.scheduler.get_schedule(Name=services.name)["ScheduleExpressionTimezone"]
    assert zone == "Europe/Vilnius"
    services.cloudformation.delete_stack(StackName=services.name)
    until(lambda: not any(each["Name"] == services.name for each in configurations(services)))


def configurations(services: Services) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = services.glue.get_security_configurations()["SecurityConfigurations"]
    return found


def test_a_secret_says_that_it_is_rotated(services: Services) -> None:
    function = f"arn:aws:lambda:{aws.REGION}:{aws.ACCOUNT}:function:f"
    resources = {
        "Secret": {"Type": "AWS::SecretsManager::Secret", "Properties": {"Name": services.name}},
        "Rotation": {
            "Type": "AWS::SecretsManager::RotationSchedule",
            "Properties": {
                "SecretId": {"Ref": "Secret"},
                "RotationLambdaARN": function,
                "RotationRules": {"AutomaticallyAfterDays": 30},
            },
        },
    }
    assert services.create(resources) == "CREATE_COMPLETE"
    made = services.secretsmanager.describe_secret(SecretId=services.name)
    assert (made["RotationEnabled"], made["RotationLambdaARN"]) == (True, function)
    assert made["RotationRules"] == {"AutomaticallyAfterDays": 30}


def test_an_alarm_of_several_metrics_is_made(services: Services) -> None:
    stat = {"Metric": {"Namespace": "calve", "MetricName": "rejects"}, "Period": 60, "Stat": "Sum"}
    properties = {
        "AlarmName": services.name,
        "ComparisonOperator": "GreaterThanThreshold",
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "Metrics": [{"Id": "all", "Expression": "SUM(METRICS())"}, {"Id": "one", "MetricStat": stat}],
    }
    alarm = {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}
    assert services.create({"Alarm": alarm}) == "CREATE_COMPLETE"
    (made,) = services.cloudwatch.describe_alarms(AlarmNames=[services.name])["MetricAlarms"]
    assert (made["MetricName"], made["Statistic"]) == ("rejects", "Sum")


def test_a_schedule_in_a_group_that_is_not_there_fails_its_stack(services: Services) -> None:
    schedule = {
        "Type": "AWS::Scheduler::Schedule",
        "Properties": {
            "GroupName": services.name,
            "ScheduleExpression": "rate(1 hour)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": f"arn:aws:sqs:{aws.REGION}:{aws.ACCOUNT}:q", "RoleArn": services.role},
        },
    }
    assert services.create({"Schedule": schedule}) in ("ROLLBACK_COMPLETE", "CREATE_FAILED")


def test_a_type_that_the_emulator_lacks_is_refused(services: Services) -> None:
    with pytest.raises(ClientError, match="AWS::Glue::NoSuchThing"):
        services.create({"Thing": {"Type": "AWS::Glue::NoSuchThing", "Properties": {}}})
