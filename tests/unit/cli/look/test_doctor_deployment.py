"""What the account and the configuration come to in rows."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from calve.config.deployment import UNKNOWN_SERVERS, Msk
from calve.config.job import Kafka
from calve.errors import ConfigError, Fatal
from cli.account import Account
from cli.console import PROFILE_VARIABLE
from cli.look.doctor.command import probes
from cli.look.doctor.deployment import (
    jobs,
    logs,
    of_account,
    of_deployment,
    of_release,
    quotas,
    roles,
    second_to,
    seen_from_aws,
)
from lambdas.doctor.finding import Finding
from tests.unit.cli.project.test_plan import DEPLOYMENT, JOB, SETTINGS

ROLE = "arn:aws:iam::111122223333:role/t-main"
GLUE_JOB = {"Name": "t-main", "Role": ROLE, "GlueVersion": "6.0", "NumberOfWorkers": 4, "WorkerType": "G.1X"}
SECRET = replace(SETTINGS, kafka=replace(SETTINGS.kafka, secret="aws:kafka"))
DEPLOYED = replace(DEPLOYMENT, jobs=(replace(JOB, settings=SECRET),))


class Stubs:
    """An account whose answers are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clients: dict[str, Any] = {}
        self.stubbers: dict[str, Stubber] = {}
        monkeypatch.setattr(Account, "client", lambda _, service, *__: self.of(service))
        monkeypatch.setattr(Account, "id", lambda _: "111122223333")
        monkeypatch.setattr(Account, "of", classmethod(lambda cls, _, region: cls(region)))
        self.account = Account("eu-west-1")

    def of(self, service: str) -> Any:
        if service not in self.clients:
            made = boto3.client(service, "eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")
            self.clients[service], self.stubbers[service] = made, Stubber(made)
            self.stubbers[service].activate()
        return self.clients[service]

    def answer(self, service: str, operation: str, answer: dict[str, Any]) -> None:
        self.of(service)
        self.stubbers[service].add_response(operation, answer)

    def refuse(self, service: str, operation: str, code: str) -> None:
        self.of(service)
        self.stubbers[service].add_client_error(operation, code)


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs(monkeypatch)


@pytest.mark.parametrize(
    ("run", "state", "cure"),
    [
        (None, "ok", ""),
        ({"JobRunState": "RUNNING"}, "ok", ""),
        (
            {"JobRunState": "FAILED", "ErrorMessage": "cannot cast 'a value'"},
            "fail",
            "its log says why: /calve/t/main in CloudWatch Logs",
        ),
    ],
)
def test_a_job_is_as_well_as_its_newest_run(
    stubs: Stubs, run: dict[str, str] | None, state: str, cure: str
) -> None:
    stubs.answer("glue", "get_job", {"Job": GLUE_JOB})
    stubs.answer("glue", "get_job_runs", {"JobRuns": [run] if run else []})
    (found,) = jobs(DEPLOYMENT, stubs.account)
    assert (found.state, found.cure) == (state, cure)
    assert found.detail.startswith("Glue 6.0, 4 x G.1X; ")


def test_a_job_that_is_not_deployed(stubs: Stubs) -> None:
    stubs.refuse("glue", "get_job", "EntityNotFoundException")
    (found,) = jobs(DEPLOYMENT, stubs.account)
    assert (found.state, found.detail, found.cure) == ("warn", "it is not deployed", "calve deploy")


GROUP = "/calve/t/main/output"


def newest(state: str = "RUNNING") -> dict[str, Any]:
    return {"JobRuns": [{"Id": "jr_1", "JobRunState": state}]}


@pytest.mark.parametrize(("streams", "state"), [([], "fail"), ([{"logStreamName": "jr_1-driver"}], "ok")])
def test_a_run_that_writes_another_log_group_than_the_one_that_is_read_is_a_fault(
    stubs: Stubs, streams: list[dict[str, str]], state: str
) -> None:
    stubs.answer("glue", "get_job_runs", newest())
    asked = {"logGroupName": GROUP, "logStreamNamePrefix": "jr_1", "limit": 1}
    stubs.of("logs")
    stubs.stubbers["logs"].add_response("describe_log_streams", {"logStreams": streams}, asked)
    (found,) = logs(DEPLOYMENT, stubs.account)
    assert (found.check, found.state) == ("log of main", state)
    assert GROUP in found.detail


@pytest.mark.parametrize("answer", [{"JobRuns": []}, newest("STARTING"), newest("WAITING")])
def test_of_a_run_that_has_not_begun_no_log_is_expected(stubs: Stubs, answer: dict[str, Any]) -> None:
    stubs.answer("glue", "get_job_runs", answer)
    assert not list(logs(DEPLOYMENT, stubs.account))


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("ResourceNotFoundException", f"there is no log group {GROUP} in this account and region"),
        ("AccessDeniedException", f"log group {GROUP} may not be read: AccessDeniedException"),
    ],
)
def test_a_log_group_that_is_not_there_or_not_to_be_read(stubs: Stubs, code: str, detail: str) -> None:
    stubs.answer("glue", "get_job_runs", newest())
    stubs.refuse("logs", "describe_log_streams", code)
    (found,) = logs(DEPLOYMENT, stubs.account)
    assert (found.state, found.detail) == ("fail", detail)


def simulated(*decisions: str) -> dict[str, Any]:
    names = ("glue:GetTable", "glue:CreateTable", "glue:UpdateTable")
    results = zip(names, decisions, strict=False)
    return {"EvaluationResults": [{"EvalActionName": name, "EvalDecision": each} for name, each in results]}


def test_what_the_role_of_a_job_lacks_is_named(stubs: Stubs) -> None:
    stubs.answer("glue", "get_job", {"Job": GLUE_JOB})
    stubs.answer("iam", "simulate_principal_policy", simulated("allowed", "implicitDeny"))
    stubs.answer("iam", "simulate_principal_policy", simulated("allowed"))
    stubs.answer("iam", "simulate_principal_policy", simulated("allowed"))
    (found,) = roles(DEPLOYED, stubs.account, "s3://lake/team")
    assert (found.check, found.state) == ("role of main", "fail")
    assert found.detail == ("it may not: glue:CreateTable on arn:aws:glue:eu-west-1:111122223333:table/t/any")


def test_a_role_that_may_do_its_work_and_one_that_may_not_be_looked_at(stubs: Stubs) -> None:
    stubs.answer("glue", "get_job", {"Job": GLUE_JOB})
    for _ in range(3):
        stubs.answer("iam", "simulate_principal_policy", simulated("allowed"))
    (found,) = roles(DEPLOYED, stubs.account, "s3://lake")
    assert found.state == "ok"
    stubs.answer("glue", "get_job", {"Job": GLUE_JOB})
    stubs.refuse("iam", "simulate_principal_policy", "AccessDenied")
    (unread,) = roles(DEPLOYED, stubs.account, "s3://lake")
    assert (unread.state, unread.cure) == ("absent", "allow iam:SimulatePrincipalPolicy")


def quota(name: str, code: str, value: float) -> dict[str, Any]:
    return {"QuotaName": name, "QuotaCode": code, "Value": value}


def test_quotas_that_are_too_small_say_what_to_ask_for(stubs: Stubs) -> None:
    stubs.answer("lambda", "get_account_settings", {"AccountLimit": {"UnreservedConcurrentExecutions": 10}})
    found = [
        quota("Max concurrent job runs per account", "L-1", 50.0),
        quota("Max task DPUs per account", "L-2", 3.0),
    ]
    stubs.answer("service-quotas", "list_service_quotas", {"Quotas": found})
    found = [
        quota("Invocations throttle limit in transactions per second", "L-3", 1.0),
        quota("PutEvents throttle limit in transactions per second", "L-4", 3.0),
    ]
    stubs.answer("service-quotas", "list_service_quotas", {"Quotas": found})
    fast = replace(SETTINGS, tables=(replace(SETTINGS.tables[0], freshness_s=0.5),))
    asked = replace(DEPLOYMENT, jobs=(replace(JOB, settings=fast),))
    functions, runs, dpus, announcements = quotas(asked, stubs.account)
    assert (functions.state, functions.detail) == ("warn", "10 run at once")
    assert (runs.state, runs.detail) == ("ok", "the jobs need 1 of 50")
    assert (dpus.state, dpus.detail) == ("fail", "the jobs need 4, the account has 3")
    assert "quota L-2 of glue" in dpus.cure
    assert (announcements.state, announcements.detail) == ("fail", "the jobs need 4, the account has 3")
    assert "quota L-4 of events" in announcements.cure
    assert "freshness" in announcements.cure


def test_quotas_that_may_not_be_read_are_no_fault(stubs: Stubs) -> None:
    stubs.refuse("lambda", "get_account_settings", "AccessDeniedException")
    for _ in range(2):
        stubs.refuse("service-quotas", "list_service_quotas", "AccessDeniedException")
    found = list(quotas(DEPLOYMENT, stubs.account))
    assert [(each.state, each.cure) for each in found] == [
        ("absent", "allow lambda:GetAccountSettings"),
        ("absent", "allow servicequotas:ListServiceQuotas"),
        ("absent", "allow servicequotas:ListServiceQuotas"),
    ]


def test_another_release_than_the_deployed_one_is_a_warning() -> None:
    assert of_release(version("calve")).state == "ok"
    assert of_release("0.0.1").state == "warn"
    assert "an older one deployed" in of_release(None).detail


def test_what_the_jobs_see_counts_where_it_is_known() -> None:
    here = [Finding("bucket", "fail", "denied"), Finding("clock", "ok", "")]
    assert second_to([], here) == here
    unanswered = [Finding("doctor", "fail", "no function")]
    assert second_to(unanswered, here) == here
    seen = second_to([Finding("bucket", "ok", "", seen_from="AWS")], here)
    assert [each.state for each in seen] == ["warn", "ok"]


def payload(said: object) -> StreamingBody:
    text = json.dumps(said).encode()
    return StreamingBody(io.BytesIO(text), len(text))


def test_what_the_deployed_doctor_says_comes_with_where_it_stands(stubs: Stubs) -> None:
    row = {"check": "bucket", "state": "ok", "detail": "x", "cure": "", "seen_from": "AWS"}
    stubs.answer("lambda", "invoke", {"Payload": payload([row])})
    assert seen_from_aws(stubs.account, "f") == [Finding(**row)]  # type: ignore[arg-type]
    broken = {"errorType": "Runtime.ImportModuleError", "errorMessage": "no module"}
    stubs.answer("lambda", "invoke", {"Payload": payload(broken), "FunctionError": "Unhandled"})
    (failed,) = seen_from_aws(stubs.account, "f")
    assert (failed.state, failed.detail) == ("fail", "f failed: no module")
    (older,) = seen_from_aws(stubs.account, None)
    assert (older.state, older.cure) == ("fail", "calve deploy")


def described(**outputs: str) -> dict[str, Any]:
    listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    made = datetime(2026, 1, 1, tzinfo=UTC)
    return {
        "Stacks": [
            {"StackName": "s", "CreationTime": made, "StackStatus": "CREATE_COMPLETE", "Outputs": listed}
        ]
    }


MADE = replace(
    DEPLOYMENT,
    jobs=(replace(JOB, settings=replace(SETTINGS, kafka=Kafka(UNKNOWN_SERVERS, "msk_iam"))),),
    msk=Msk(),
)


def test_what_only_a_deploy_knows_is_asked_of_the_stacks(stubs: Stubs) -> None:
    for outputs in ({"Warehouse": "s3://lake"}, {"DoctorFunction": "f"}, {"Servers": "made.invalid:1"}):
        stubs.answer("cloudformation", "describe_stacks", described(**outputs))
    headers = {"HTTPHeaders": {"x-amz-bucket-region": "eu-west-1"}}
    stubs.answer("s3", "list_objects_v2", {"ResponseMetadata": headers})
    found = {each.check: each for each in of_account(MADE, None, remote=False)}
    assert found["bucket"].state == "ok"
    assert found["kafka servers"].detail == "made.invalid has no address"
    assert "an older one deployed" in found["release"].detail


def test_what_is_not_deployed_is_not_looked_at(stubs: Stubs) -> None:
    stubs.refuse("cloudformation", "describe_stacks", "ValidationError")
    found = {each.check: each for each in of_account(MADE, None, remote=True)}
    assert (found["deployment"].state, "calve deploy" in found["deployment"].cure) == ("absent", True)
    assert (found["kafka"].state, found["kafka"].detail) == ("absent", "a deploy makes the cluster")
    assert not {"bucket", "release", "doctor"} & found.keys()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without an embedded stack."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "calve.yaml"


def test_without_a_configuration_nothing_is_wrong(alone: Path) -> None:
    (found,) = of_deployment(alone, None, remote=False)
    assert (found.state, found.cure) == ("absent", "calve init")


def test_a_configuration_for_the_embedded_stack_waits_for_it(alone: Path) -> None:
    alone.write_text("name: t\ntables: {t: {topic: t}}\n")
    (found,) = of_deployment(alone, None, remote=False)
    assert (found.check, found.state) == ("configuration", "absent")
    assert found.cure.startswith("calve up")


def test_with_a_profile_nothing_is_said_of_the_embedded_stack(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, "prod")
    alone.write_text("name: t\ntables: {t: {topic: t}}\n")
    (found,) = of_deployment(alone, None, remote=False)
    assert (found.check, found.state) == ("configuration", "fail")
    assert "kafka     is missing" in found.detail
    assert "calve up" not in found.detail + found.cure
    assert not {"kafka", "registry", "aws", "aws emulator"} & probes(alone.parent, embedded=False).keys()
    assert {"kafka", "registry", "aws", "aws emulator"} < probes(alone.parent).keys()


def test_a_configuration_that_cannot_be_used_is_the_row(alone: Path) -> None:
    alone.write_text("name: t\ntables: {t: {topic: t, colour: red}}\n")
    (found,) = of_deployment(alone, None, remote=False)
    assert (found.state, "colour" in found.detail) == ("fail", True)


def test_without_credentials_the_cure_is_to_log_in(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone.write_text(
        "name: t\nkafka: {bootstrap_servers: b:1}\nregistry: {url: https://r}\nlake: {region: eu-west-1}\n"
        "tables: {t: {topic: t}}\n"
    )

    def refused(_: Account) -> str:
        raise ConfigError("there are no AWS credentials", fix="log in: aws sso login")

    monkeypatch.setattr(Account, "id", refused)
    configuration, account = of_deployment(alone, None, remote=True)
    assert configuration.state == "ok"
    assert (account.check, account.state, account.cure) == ("aws account", "fail", "log in: aws sso login")


def test_a_clock_that_aws_refuses_is_named_beside_the_refusal(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Account) -> str:
        raise Fatal("the AWS account may not be read: SignatureDoesNotMatch")

    monkeypatch.setattr(Account, "id", refused)
    late = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    metadata = {"HTTPHeaders": {"date": late}}
    stubs.of("sts")
    stubs.stubbers["sts"].add_client_error(
        "get_caller_identity", "SignatureDoesNotMatch", response_meta=metadata
    )
    account, clock = of_account(DEPLOYMENT, None, remote=False)
    assert (account.state, clock.check, clock.state) == ("fail", "clock", "fail")
    assert clock.detail.endswith("ahead of AWS's")


def test_stacks_that_may_not_be_read_are_a_fault_and_not_absent(stubs: Stubs) -> None:
    stubs.refuse("cloudformation", "describe_stacks", "AccessDenied")
    found = {each.check: each for each in of_account(MADE, None, remote=False)}
    assert found["deployment"].state == "fail"
