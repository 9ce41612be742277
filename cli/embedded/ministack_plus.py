"""The AWS emulator, with the types and behaviour that the stacks need and ministack lacks.

It runs in the emulator's own environment, without calve and its packages: standard library and ministack only. A deploy fails on
a type that neither supports.
"""

from __future__ import annotations

import contextvars
import functools
import json
import runpy
import threading
import time
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from ministack import app
from ministack.app import main
from ministack.core import iam_actions
from ministack.services import eventbridge, glue, lambda_svc, s3, scheduler, secretsmanager, ses, ses_v2, sns
from ministack.services.cloudformation import provisioners

Json = dict[str, Any]
STATISTICS = ("Average", "Maximum", "Minimum", "SampleCount", "Sum")
ROTATION_STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")

_of_secrets = provisioners._RESOURCE_HANDLERS["AWS::SecretsManager::Secret"]
_of_schedules = provisioners._RESOURCE_HANDLERS["AWS::Scheduler::Schedule"]
_alarm_record = provisioners._cw_metric_alarm_record
_invoke_target = eventbridge._invoke_target
_get_job_runs = glue._get_job_runs
_start_job_run = glue._start_job_run
_rotate_secret = secretsmanager._rotate_secret
_describe_secret = secretsmanager._describe_secret
_fanout = sns._fanout
MAILS = Path("mails")
_mail_lock = threading.Lock()


def create_security_configuration(logical_id: str, props: Json, stack_name: str) -> tuple[str, Json]:
    """AWS::Glue::SecurityConfiguration: ministack's service has it, its CloudFormation does not."""
    name = props.get("Name") or f"{stack_name}-{logical_id}"
    encryption = dict(props["EncryptionConfiguration"])
    if "S3Encryptions" in encryption:  # CloudFormation has its own word for it
        encryption["S3Encryption"] = encryption.pop("S3Encryptions")
    request = {"Name": name, "EncryptionConfiguration": encryption}
    status, _, body = glue._create_security_configuration(request)
    if status >= 400:
        raise ValueError(json.loads(body))
    return name, {}


def create_rotation(_logical_id: str, props: Json, _stack_name: str) -> tuple[str, Json]:
    """AWS::SecretsManager::RotationSchedule: the secret says that it rotates; only `rotate_secret` rotates it."""
    _, secret = secretsmanager._resolve(props["SecretId"])
    if secret is None:
        raise ValueError(f"there is no secret {props['SecretId']}")
    rules = props.get("RotationRules", {})
    secret["RotationLambdaARN"] = props["RotationLambdaARN"]
    secret["RotationRules"] = {
        name: int(value) if str(value).isdecimal() else value for name, value in rules.items()
    }
    secret["RotationEnabled"] = True
    return secret["ARN"], {}


def delete_rotation(physical_id: str, _props: Json) -> None:
    _, secret = secretsmanager._resolve(physical_id)
    if secret:
        secret["RotationEnabled"] = False


def secret_by_arn(handle: Any, *arguments: Any) -> Any:
    """AWS::SecretsManager::Secret: its `Ref` is its ARN; ministack's is its name."""
    first, *rest = arguments
    if first.startswith("arn:"):
        first = first.partition(":secret:")[2][:-7]
    made = handle(first, *rest)
    return (made[1]["Arn"], made[1]) if isinstance(made, tuple) else made


def rotate_secret(request: Json) -> Any:
    """RotateSecret: stage a version without a value; the secret's function, if any, does the steps.

    ministack brings a copy of the value into use instead.
    """
    _, secret = secretsmanager._resolve(request.get("SecretId"))
    if secret is None:
        return _rotate_secret(request)
    version, now = request["ClientRequestToken"], int(time.time())
    secret["Versions"][version] = {
        "SecretString": None,
        "SecretBinary": None,
        "CreatedDate": now,
        "Stages": ["AWSPENDING"],
    }
    if function := secret.get("RotationLambdaARN"):
        steps = functools.partial(contextvars.copy_context().run, rotation_steps, secret, function, version)
        threading.Thread(target=steps, daemon=True).start()
    return secretsmanager.json_response({"ARN": secret["ARN"], "Name": secret["Name"], "VersionId": version})


def rotation_steps(secret: Json, function: str, version: str) -> None:
    """Invoke the function step by step. A failed step ends the rotation, and the version stays pending."""
    record = lambda_svc._execution_record_for_config(*lambda_svc._get_func_record_for_ref(function)[:2])
    for step in ROTATION_STEPS:
        event = {"Step": step, "SecretId": secret["ARN"], "ClientRequestToken": version}
        if lambda_svc._execute_function_with_config_scope(record, event).get("error"):
            return
    secret["LastRotatedDate"] = int(time.time())


def describe_secret(request: Json) -> Any:
    """DescribeSecret: with the dates of rotations."""
    status, headers, body = _describe_secret(request)
    _, secret = secretsmanager._resolve(request.get("SecretId"))
    if secret is None or not secret.get("RotationEnabled"):
        return status, headers, body
    answer = json.loads(body)
    last, days = secret.get("LastRotatedDate"), secret["RotationRules"].get("AutomaticallyAfterDays")
    if last:
        answer["LastRotatedDate"] = last
    if days:
        answer["NextRotationDate"] = (last or secret["LastChangedDate"]) + days * 86_400
    return status, headers, json.dumps(answer).encode()


def schedule(handle: Any, *arguments: Any) -> tuple[str, Json]:
    """AWS::Scheduler::Schedule: ministack drops the time zone, and accepts a schedule of a missing group."""
    name, attributes = handle(*arguments)
    props = arguments[-2]  # before the name of the stack
    made = scheduler._schedules.get(f"{props.get('GroupName', 'default')}/{name}")
    if made is None:
        raise ValueError(f"Schedule {name}: its group {props.get('GroupName')} does not exist")
    made["ScheduleExpressionTimezone"] = props.get("ScheduleExpressionTimezone", "UTC")
    return name, attributes


def alarm_record(name: str, props: Json) -> Json:
    """AWS::CloudWatch::Alarm: ministack refuses one with `Metrics`; here it watches the first of them, not their sum."""
    stats = [each["MetricStat"] for each in props.get("Metrics", ()) if "MetricStat" in each]
    if stats:
        stat = stats[0]["Stat"]
        kind = "Statistic" if stat in STATISTICS else "ExtendedStatistic"
        flat = {**stats[0]["Metric"], "Period": stats[0]["Period"], kind: stat}
        props = {key: value for key, value in props.items() if key != "Metrics"} | flat
    record: Json = _alarm_record(name, props)
    return record


def invoke_target(target: Json, event: Json, rule: Json, *rest: Any) -> None:
    """Fill in the scheduler's context attributes, which ministack leaves out."""
    if event.get("Source") != "aws.scheduler":
        _invoke_target(target, event, rule, *rest)
        return
    at = scheduler._at_time_epoch(rule["ScheduleExpression"]) or event["Time"]
    scheduled = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = target.get("Input", "").replace("<aws.scheduler.scheduled-time>", scheduled)
    _invoke_target(target | {"Input": given}, event, rule, *rest)


def start_job_run(request: Json) -> Any:
    """StartJobRun: nothing runs here, `calve run-job` does. A deploy waits for tables, so the run says that they are open."""
    answer = _start_job_run(request)
    arguments = glue._jobs.get(request["JobName"], {}).get("DefaultArguments", {}) | request.get(
        "Arguments", {}
    )
    if (place := report_of(request["JobName"])) and "--generation" in arguments:
        said = json.loads(s3._get_object_data(*place) or b"{}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        run = {"began": now, "at": now, "ended": now, "generation": arguments["--generation"], "opened": now}
        said["runs"] = said.get("runs", {}) | {"emulated": run}
        s3._put_object(*place, json.dumps(said).encode(), {})
    return answer


def report_of(job: str) -> tuple[str, str] | None:
    """Bucket and key of what a job says of itself; None: it has no control object beside."""
    control = glue._jobs.get(job, {}).get("DefaultArguments", {}).get("--control")
    if control is None:
        return None
    bucket, _, key = control.removeprefix("s3://").partition("/")
    folder, _, file = key.rpartition("_calve/jobs/")
    return bucket, f"{folder}_calve/status/{job.removesuffix('-' + file.removesuffix('.json'))}/{file}"


def is_alive(job: str) -> bool:
    """Whether `calve run-job` runs it: a process reports once a minute, and at its end."""
    place = report_of(job)
    said = json.loads(s3._get_object_data(*place) or b"{}") if place else {}
    since = (datetime.now(UTC) - timedelta(seconds=70)).isoformat()
    return any(each.get("ended") is None and each["at"] > since for each in said.get("runs", {}).values())


def get_job_runs(request: Json) -> tuple[int, Any, bytes]:
    """List the newest first, as Glue does. It runs as long as `calve run-job` does, so a destroy waits for that."""
    status, headers, body = _get_job_runs(request)
    answer = json.loads(body)
    runs = answer["JobRuns"][::-1]
    if runs and is_alive(request["JobName"]):
        runs[0]["JobRunState"] = "RUNNING"
        runs[0].pop("CompletedOn", None)
    return status, headers, json.dumps(answer | {"JobRuns": runs}).encode()


def keep_mail(_source: str, _recipients: list[str], message: str) -> None:
    """Keep a mail as a file in the emulator's folder, `calve mail` shows it; ministack would send it to a mail server."""
    with _mail_lock:
        MAILS.mkdir(exist_ok=True)
        number = sum(1 for _ in MAILS.iterdir()) + 1
        made = MAILS / f"{number:04}.part"
        dated = "" if "\nDate:" in message else f"Date: {format_datetime(datetime.now(UTC))}\n"
        made.write_text(f"{dated}{message}", encoding="utf-8")
        made.rename(made.with_suffix(".eml"))


def fanout(topic: str, id: str, text: str, subject: str, *more: Any, **named: Any) -> None:
    """Keep the mails of a topic, too. On AWS somebody must confirm each address first; here all addresses get them."""
    _fanout(topic, id, text, subject, *more, **named)
    found = sns._topic_by_arn_any_scope(topic) or {"subscriptions": []}
    for each in found["subscriptions"]:
        if each.get("protocol") == "email":
            mail = EmailMessage()
            mail["From"], mail["To"] = "AWS Notifications <no-reply@sns.amazonaws.com>", each["endpoint"]
            mail["Subject"] = subject or "AWS Notification Message"
            mail.set_content(text)
            keep_mail("", [each["endpoint"]], mail.as_string())


async def lake_formation(*_request: Any) -> tuple[int, Json, bytes]:
    """Any request to Lake Formation, as in an account where it leaves everything to IAM."""
    everybody = {"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"}
    open_ = [{"Principal": everybody, "Permissions": ["ALL"]}]
    names = ("CreateDatabaseDefaultPermissions", "CreateTableDefaultPermissions")
    none: Json = {"PrincipalResourcePermissions": [], "ResourceInfoList": []}
    answer = none | {"DataLakeSettings": dict.fromkeys(names, open_)}
    return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


provisioners._RESOURCE_HANDLERS |= {
    "AWS::Glue::SecurityConfiguration": {
        "create": create_security_configuration,
        "delete": lambda name, _props: glue._delete_security_configuration({"Name": name}),
    },
    "AWS::SecretsManager::Secret": {
        **_of_secrets,
        **{
            each: functools.partial(secret_by_arn, _of_secrets[each])
            for each in ("create", "update", "delete")
        },
    },
    "AWS::SecretsManager::RotationSchedule": {
        "create": create_rotation,
        "update": lambda name, _old, new, stack: create_rotation(name, new, stack),
        "delete": delete_rotation,
    },
    "AWS::Scheduler::Schedule": {
        **_of_schedules,
        "create": functools.partial(schedule, _of_schedules["create"]),
        "update": functools.partial(schedule, _of_schedules["update"]),
    },
}
app.SERVICE_HANDLERS["lakeformation"] = lake_formation
iam_actions.SERVICE_TO_IAM_NAMESPACE["lakeformation"] = "lakeformation"
iam_actions._BOTOCORE_SERVICE_MAP["lakeformation"] = ["lakeformation"]
provisioners._cw_metric_alarm_record = alarm_record
eventbridge._invoke_target = invoke_target
glue._get_job_runs = get_job_runs
glue._start_job_run = start_job_run
secretsmanager._rotate_secret = rotate_secret
secretsmanager._describe_secret = describe_secret
ses._smtp_relay = ses_v2._smtp_relay = keep_mail
# On AWS, somebody answers SES's mail to a new sender. Here nobody can, so every sender counts as verified.
ses._message_rejection = ses_v2._message_rejection = lambda *_: None
sns._fanout = fanout
scheduler._SCHEDULE_TICK_INTERVAL = 1  # not 10 s: nobody likes to wait

runpy.run_path(str(Path(__file__).with_name("ministack_iam.py")))

if __name__ == "__main__":
    main()
