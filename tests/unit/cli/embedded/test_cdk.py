"""What the CDK CLI says, and what of it a user sees."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from cli.embedded import cdk
from cli.embedded.stack import Stack
from cli.progress import Task


class Shown(Task):
    def __init__(self) -> None:
        super().__init__(None, lambda: None)
        self.seen: list[tuple[int | None, int | None, str | None]] = []

    def update(self, done: int | None = None, *, total: int | None = None, note: str | None = None) -> None:
        self.seen.append((done, total, note))


def test_events_are_progress_over_all_stacks() -> None:
    shown = Shown()
    said = cdk._Said(shown)
    said.hear(
        "a-lake | 3/7 | 10:07:54 AM | CREATE_COMPLETE      | AWS::S3::Bucket  | Bucket (Bucket83908E77)"
    )
    said.hear("a-ingest |  1/20 | 10:07:55 AM | CREATE_IN_PROGRESS | AWS::Glue::Job | main/Job (mainJob) ")
    assert shown.seen == [(3, 7, "a-lake: AWS::S3::Bucket"), (4, 27, "a-ingest: AWS::Glue::Job")]
    assert said.lines == []


def test_a_deletion_has_no_total() -> None:
    shown = Shown()
    cdk._Said(shown).hear("a-lake |  31 | 10:10:04 AM | DELETE_COMPLETE | AWS::IAM::Role | Fn/Role (FnRole)")
    assert shown.seen == [(31, None, "a-lake: AWS::IAM::Role")]


def test_why_a_resource_failed_is_kept_and_noise_is_not() -> None:
    said = cdk._Said(Shown())
    said.hear("a-lake | 3/7 | 10:07:54 AM | CREATE_FAILED | AWS::S3::Bucket | Bucket (B8) it exists already")
    for noise in (
        "",
        "a-lake: start: Publishing a-lake Template (000000000000-us-east-1-73385a28)",
        "success: Built a-lake Template",
        "Bundling asset a-lake/Function/Code/Stage...",
    ):
        said.hear(noise)
    said.hear("calve.yaml: 1 problem")
    assert said.lines == ["a-lake: AWS::S3::Bucket Bucket (B8) it exists already", "calve.yaml: 1 problem"]


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(
        root=tmp_path,
        bootstrap_servers="127.0.0.1:1",
        ssl_bootstrap_servers="",
        sasl_bootstrap_servers="",
        ca_file=tmp_path,
        sasl_user="",
        sasl_password="",
        registry_url="http://127.0.0.1:2",
        aws_endpoint="http://127.0.0.1:3",
        bucket="calve-lake",
        region="us-east-1",
        logs=tmp_path,
    )


def test_the_file_is_deployed_where_it_is_with_the_servers_that_it_may_omit(
    stack: Stack, tmp_path: Path
) -> None:
    """Its schema files are named relative to it."""
    words = cdk.App(stack, tmp_path / "calve.yaml", "prod").arguments()
    context = {word for option, word in pairwise(words) if option == "-c"}
    assert context == {
        f"config={tmp_path}/calve.yaml",
        "env=prod",
        "lambda_architecture=host",
        "kafka=127.0.0.1:1",
        "registry=http://127.0.0.1:2",
    }


def test_nothing_of_the_users_aws_or_cdk_configuration_reaches_the_cli(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "CDK_HOME", "CDK_CONTEXT_JSON"):
        monkeypatch.setenv(name, "the user's own")
    monkeypatch.setenv("HOME", "/home/me")
    deployed = app_of(stack)
    environment = deployed.environment()
    assert "the user's own" not in environment.values()
    assert environment["HOME"] == str(deployed.folder / "home")
    assert environment["AWS_ENDPOINT_URL"] == stack.aws_endpoint
    assert "HOME=/home/me " in " ".join(deployed.arguments())


def app_of(stack: Stack) -> cdk.App:
    return cdk.App(stack, stack.root / "calve.yaml")
