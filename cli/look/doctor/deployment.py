"""The checks of a deployment: configuration, account, jobs, roles, quotas, and the systems that its jobs use.

Nothing is changed; IAM only simulates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import ClientError

from calve.config.deployment import UNKNOWN_SERVERS, Deployment
from calve.config.job import Kafka, Registry, S3Tables
from calve.errors import CalveError, ConfigError, Fatal, Retryable
from calve.names import log_prefix
from calve.settings import load_deployment
from calve.settings.resolving import StackDefaults
from cli.account import Account, outputs
from cli.config import embedded_stack, found, load_target, profile_is_named
from cli.embedded.stack import Stack
from cli.lake import aws_errors
from cli.look.cost.model import dpus
from lambdas.aws import code_of
from lambdas.doctor import lake
from lambdas.doctor.checks import LIMIT_S, lake_probes, probes, secrets_of
from lambdas.doctor.finding import Finding, Probe, examine, of_error
from lambdas.doctor.lake import ABSENT, DENIED

NO_KAFKA, NO_REGISTRY = Kafka("kafka.invalid:9092"), Registry("https://registry.invalid")
"""Placeholders while the embedded stack does not run."""
DEPLOY_FIRST = "deploy it: calve deploy"
DEPLOY = "calve deploy"
FEW_RUNS_OF_FUNCTIONS = 10
"""A new account's limit; mails, rotations and publishing need as many at once."""
COMMITS_PER_FRESHNESS = 2
"""The most commits that a table announces within its `freshness`: a round and its maintenance."""
INSTEAD = {"glue": "lower `workers.max`", "events": "promise less `freshness`"}
PATIENT = Config(connect_timeout=5, read_timeout=130, retries={"total_max_attempts": 1})
"""The deployed doctor waits for what does not answer."""
UNHEARD = (
    "the run in the Glue console links to the log group that it writes; report the name, with Glue's version"
)
UNKNOWN = ("InternalFailure", "InvalidAction", "UnknownOperationException", "NotImplemented")


def of_deployment(config: Path, env: str | None, *, remote: bool) -> list[Finding]:
    """All findings; a failed check that others depend on ends the list."""
    if not found(config).exists():
        return [Finding("configuration", "absent", f"there is no {config}", "calve init")]
    try:
        if embedded_stack() or profile_is_named():
            deployment, embedded = load_target(config, env)
        else:
            deployment = load_deployment(found(config), env, StackDefaults(NO_KAFKA, NO_REGISTRY))
            embedded = None
    except CalveError as error:
        return [of_error("configuration", error)]
    first = deployment.jobs[0].settings
    if first.kafka.bootstrap_servers == NO_KAFKA.bootstrap_servers or first.registry == NO_REGISTRY:
        detail = "it leaves Kafka or the registry to the embedded stack, which is not up"
        return [Finding("configuration", "absent", detail, "calve up, or name them in calve.yaml")]
    tables = sum(len(job.settings.tables) for job in deployment.jobs)
    detail = f"{deployment.name}: {', '.join(job.settings.job for job in deployment.jobs)} of {tables} tables"
    return [Finding("configuration", "ok", detail), *of_account(deployment, embedded, remote=remote)]


def of_account(deployment: Deployment, embedded: Stack | None, *, remote: bool) -> list[Finding]:
    own: dict[str, Probe] = {}
    try:
        account = Account.of(embedded, deployment.region)
        own["clock"] = partial(lake.clock, account.client("sts").get_caller_identity)
        number = account.id()
    except ConfigError as error:
        return [of_error("aws account", error)]
    except CalveError as error:  # a clock that is wrong may be why
        return [of_error("aws account", error), *examine(own, limit_s=LIMIT_S)]
    stacks = _stacks(deployment, account)
    own["quotas"] = partial(quotas, deployment, account)
    # With values that only the account or a deploy knows.
    settings = [each.settings for each in deployment.jobs]
    settings = [replace(each, lake=replace(each.lake, region=account.region)) for each in settings]
    if isinstance(stacks, dict) and (servers := stacks.get("Servers")):
        settings = [replace(each, kafka=replace(each.kafka, bootstrap_servers=servers)) for each in settings]
    shared = probes(settings, account.client)
    if settings[0].kafka.bootstrap_servers == UNKNOWN_SERVERS:
        shared["kafka"] = partial(Finding, "kafka", "absent", "a deploy makes the cluster", DEPLOY_FIRST)
    far: list[Finding] = []
    if isinstance(stacks, dict):
        database = deployment.lake.database if deployment.lake.namespace == "database" else None
        shared |= lake_probes(settings, account.client, stacks["Warehouse"], database, for_operator=True)
        own["release"] = partial(of_release, stacks.get("Release"))
        own["jobs"] = partial(jobs, deployment, account)
        if embedded is None:  # which runs no jobs
            own["logs"] = partial(logs, deployment, account)
        own["roles"] = partial(roles, deployment, account, stacks["Warehouse"])
        if remote:
            function = stacks.get("DoctorFunction")
            far = examine({"doctor": partial(seen_from_aws, account, function)}, limit_s=140.0)
    return [
        Finding("aws account", "ok", f"{number}, {account.region}"),
        *([stacks] if isinstance(stacks, Finding) else []),
        *examine(own, limit_s=LIMIT_S),
        *second_to(far, examine(shared, limit_s=LIMIT_S)),
        *far,
    ]


def second_to(far: list[Finding], here: list[Finding]) -> list[Finding]:
    """The findings from here. If the jobs' own view is known, too, failures from here are only warnings."""
    if all(each.seen_from == "here" for each in far):
        return here
    return [replace(each, state="warn") if each.state == "fail" else each for each in here]


def _stacks(deployment: Deployment, account: Account) -> dict[str, str] | Finding:
    """The outputs of the deployed stacks, with the servers of a cluster that they made."""
    found: dict[str, str] = {}
    try:
        for stack in ("lake", "ingest", *(["kafka"] if deployment.msk else [])):
            found |= outputs(account, f"{deployment.name}-{stack}", fix=DEPLOY_FIRST)
    except (Retryable, Fatal) as error:
        return of_error("deployment", error)
    except CalveError as error:
        return Finding("deployment", "absent", error.message, error.fix or "")
    return found


def jobs(deployment: Deployment, account: Account) -> Iterator[Finding]:
    """Each Glue job: whether it exists, and how its newest run ended."""
    glue = account.client("glue")
    for job in deployment.jobs:
        name = f"{deployment.name}-{job.settings.job}"
        try:
            found = glue.get_job(JobName=name)["Job"]
            runs = glue.get_job_runs(JobName=name, MaxResults=1)["JobRuns"]
        except ClientError as error:
            if code_of(error) in ABSENT:
                yield Finding(f"job {name}", "warn", "it is not deployed", DEPLOY)
            else:
                fix = "allow glue:GetJob and glue:GetJobRuns"
                yield Finding(f"job {name}", "warn", f"it may not be read: {code_of(error)}", fix)
            continue
        shape = f"Glue {found.get('GlueVersion', '?')}, {found.get('NumberOfWorkers')} x {found.get('WorkerType')}"
        state = runs[0]["JobRunState"] if runs else ""
        detail = f"{shape}; {f'newest run {state}' if runs else 'has not run'}"
        if state in ("FAILED", "ERROR", "TIMEOUT"):
            log = f"its log says why: {log_prefix(deployment.name, job.settings.job)} in CloudWatch Logs"
            yield Finding(f"job {name}", "fail", detail, log)
        else:
            yield Finding(f"job {name}", "ok", detail)


def logs(deployment: Deployment, account: Account) -> Iterator[Finding]:
    """Whether the newest run of each job writes the log group that metrics and alarms read."""
    glue, client = account.client("glue"), account.client("logs")
    for job in deployment.jobs:
        name, check = f"{deployment.name}-{job.settings.job}", f"log of {job.settings.job}"
        group = f"{log_prefix(deployment.name, job.settings.job)}/output"
        try:
            runs = glue.get_job_runs(JobName=name, MaxResults=1)["JobRuns"]
            if not runs or runs[0]["JobRunState"] in ("WAITING", "STARTING"):
                continue
            run = runs[0]["Id"]
            found = client.describe_log_streams(logGroupName=group, logStreamNamePrefix=run, limit=1)
        except ClientError as error:
            if error.operation_name != "GetJobRuns":  # the check of jobs says so
                yield lake.refused(check, error, f"log group {group}", "logs:DescribeLogStreams on it")
            continue
        if found["logStreams"]:
            yield Finding(check, "ok", f"run {run} writes {group}")
        else:
            detail = f"run {run} has written nothing into {group}: metrics and alarms hear nothing of the job"
            yield Finding(check, "fail", detail, UNHEARD)


def roles(deployment: Deployment, account: Account, warehouse: str) -> Iterator[Finding]:
    """The permissions of each job's role, as IAM simulates them, without policies of the organisation and of buckets."""
    iam, glue = account.client("iam"), account.client("glue")
    for job in deployment.jobs:
        check = f"role of {job.settings.job}"
        try:
            role = glue.get_job(JobName=f"{deployment.name}-{job.settings.job}")["Job"]["Role"]
            denied = []
            for actions, resource in _needed(deployment, role, account.region, warehouse):
                simulated = iam.simulate_principal_policy(
                    PolicySourceArn=role, ActionNames=actions, ResourceArns=[resource]
                )
                denied += [
                    f"{each['EvalActionName']} on {resource}"
                    for each in simulated["EvaluationResults"]
                    if each["EvalDecision"] != "allowed"
                ]
        except ClientError as error:
            code = code_of(error)
            if code in DENIED:
                yield Finding(check, "absent", "not looked at", "allow iam:SimulatePrincipalPolicy")
            elif code not in (*ABSENT, *UNKNOWN):
                yield Finding(check, "warn", f"IAM does not say: {code}")
            continue
        if denied:
            fix = f"{DEPLOY} gives it what it needs, unless a boundary or a policy of the organisation forbids it"
            yield Finding(check, "fail", f"it may not: {', '.join(denied)}", fix)
        else:
            yield Finding(check, "ok", "it may read its secrets, and write tables and their files")


def quotas(deployment: Deployment, account: Account) -> Iterator[Finding]:
    try:
        limits = account.client("lambda").get_account_settings()["AccountLimit"]
    except ClientError as error:
        yield _unread("quota of functions", error, "lambda:GetAccountSettings")
    else:
        free = limits.get("UnreservedConcurrentExecutions", limits.get("ConcurrentExecutions", 0))
        check, detail = "quota of functions", f"{free:g} run at once"
        if free > FEW_RUNS_OF_FUNCTIONS:
            yield Finding(check, "ok", detail)
        else:
            yield Finding(check, "warn", detail, "ask for more: quota L-B99A9384 of lambda in Service Quotas")
    client = account.client("service-quotas")
    tables = [each for job in deployment.jobs for each in job.settings.tables]
    workers = sum(each.workers.max * dpus(each.worker) for each in deployment.jobs)
    events = sum(COMMITS_PER_FRESHNESS / each.freshness_s for each in tables)
    # The greatest need of the jobs per service, by a part of the quota's name.
    greatest = {
        "glue": {
            "concurrent job runs per account": len(deployment.jobs),
            "max task dpus per account": math.ceil(workers),
        },
        "events": {"putevents throttle limit": math.ceil(events)},
    }
    for service, needs in greatest.items():
        try:
            pages = client.get_paginator("list_service_quotas").paginate(ServiceCode=service)
            found = [each for page in pages for each in page["Quotas"]]
        except ClientError as error:
            yield _unread(f"quotas of {service}", error, "servicequotas:ListServiceQuotas")
            continue
        for part, need in needs.items():
            for each in (each for each in found if part in each["QuotaName"].lower()):
                name, value = f"quota: {part}", each["Value"]
                if need > value:
                    code = f"ask for more: quota {each['QuotaCode']} of {service} in Service Quotas"
                    fix = f"{code}, or {INSTEAD[service]}"
                    yield Finding(name, "fail", f"the jobs need {need}, the account has {value:g}", fix)
                else:
                    yield Finding(name, "ok", f"the jobs need {need} of {value:g}")


def of_release(deployed: str | None) -> Finding:
    """This release against the deployed one; None: the deployment does not report its release."""
    here, there = version("calve"), deployed or "an older one"
    if there == here:
        return Finding("release", "ok", f"{here} here and deployed")
    return Finding("release", "warn", f"{here} here, {there} deployed", f"{DEPLOY}, or use {there} here")


def seen_from_aws(account: Account, function: str | None) -> list[Finding]:
    """The findings of the deployed doctor, which runs in the jobs' network."""
    if function is None:
        return [Finding("doctor", "fail", "it is not deployed: the stacks are of an older release", DEPLOY)]
    with aws_errors(f"the function {function}"):
        answer = account.client("lambda", PATIENT).invoke(FunctionName=function, Payload=b"{}")
        answered = json.loads(answer["Payload"].read())
    if "FunctionError" in answer:
        why = answered.get("errorMessage") or answered.get("errorType")
        return [Finding("doctor", "fail", f"{function} failed: {why}", "its log says more")]
    return [Finding(**each) for each in answered]


def _needed(
    deployment: Deployment, role: str, region: str, warehouse: str
) -> Iterator[tuple[list[str], str]]:
    """Actions of the job, with a resource of each kind, in the account of its role."""
    _, partition, _, _, number, _ = role.split(":", 5)
    place = urlsplit(warehouse)
    database = deployment.lake.database
    files = f"{place.netloc}/{place.path.strip('/')}".rstrip("/")
    if deployment.lake.namespace == "database":
        files += f"/{database}"
    match deployment.lake.catalog:
        case None if deployment.lake.namespace == "database":
            table = f"arn:{partition}:glue:{region}:{number}:table/{database}/any"
            yield ["glue:GetTable", "glue:CreateTable", "glue:UpdateTable"], table
        case S3Tables(bucket_arn=bucket):
            yield ["s3tables:PutTableData", "s3tables:UpdateTableMetadataLocation"], f"{bucket}/table/any"
    yield ["s3:GetObject", "s3:PutObject"], f"arn:{partition}:s3:::{files}/any"
    for _, reference in secrets_of(deployment.jobs[0].settings):
        kind, _, name = reference.partition(":")
        if kind == "aws":
            whole = f"arn:{partition}:secretsmanager:{region}:{number}:secret:{name}-AbCdEf"
            yield ["secretsmanager:GetSecretValue"], name if name.startswith("arn:") else whole


def _unread(check: str, error: ClientError, action: str) -> Finding:
    return Finding(check, "absent", f"not looked at: {code_of(error)}", f"allow {action}")
