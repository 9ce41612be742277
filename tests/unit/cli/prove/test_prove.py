"""What `calve prove` refuses and asks before it spends, and what it judges where the emulator has nothing to judge."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from calve.config.deployment import Msk
from calve.errors import CalveError, ConfigError
from calve.settings import load_deployment
from cli.account import Account
from cli.console import Console
from cli.main import app as calve
from cli.prove import checks, command, watching
from cli.prove import scene as scenes
from cli.prove.report import Evidence, NotCheckedError, Price, judge, page, price
from cli.prove.scene import TRADES, USERS, Scene, configuration

NAME, NUMBER = "calve-prove-0a1b2c", "111122223333"
GIVEN = {
    "kafka": {
        "bootstrap_servers": "b-1.shop:9096",
        "auth": {"type": "sasl_scram", "secret": "aws:k", "ca_file": "ca.pem", "rotate": {"after_days": 7}},
    },
    "registry": {"url": "https://r", "ca_file": "ca.pem"},
    "lake": {"region": "eu-west-1", "bucket": "theirs"},
    "tables": {"theirs": {"topic": "theirs"}},
}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A deployment in an AWS account, whose clients a test puts into `clients`. Nobody waits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calve.yaml").touch()
    (tmp_path / "ca.pem").touch()
    folder = scenes.folder_of(NAME)
    folder.mkdir(parents=True)
    (folder / "calve.yaml").write_text(configuration(NAME, GIVEN, tmp_path, "a@b.c"))
    monkeypatch.setattr(scenes, "PATIENCE_S", 0.0)
    monkeypatch.setattr(scenes, "POLL_S", 0.0)
    deployment = load_deployment(folder / "calve.yaml")
    made = Scene(NAME, Account("eu-west-1"), NUMBER, deployment, None, Console())
    made.outputs = {
        f"{NAME}-lake": {"Warehouse": "s3://lake", "Workgroup": "w"},
        f"{NAME}-ingest": {"mainTables12": "2 of 2 tables are open"},
    }
    return made


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The stub of each service's client, by the service's name."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(Scene, "client", lambda _, service: found[service])
    return found


def pages(*answers: dict[str, Any]) -> Any:
    """A paginator that has these pages, whatever is asked."""
    return SimpleNamespace(paginate=lambda **_: iter(answers))


def test_the_configuration_has_the_users_kafka_and_registry_and_nothing_else_of_theirs(
    tmp_path: Path,
) -> None:
    made = yaml.safe_load(configuration(NAME, json.loads(json.dumps(GIVEN)), tmp_path, "a@b.c"))
    assert made["kafka"]["auth"] == {
        "type": "sasl_scram",
        "secret": "aws:k",
        "ca_file": str(tmp_path / "ca.pem"),
    }
    assert made["registry"] == {"url": "https://r", "ca_file": str(tmp_path / "ca.pem")}
    assert made["lake"] == {"region": "eu-west-1"}
    assert set(made["tables"]) == {TRADES, USERS}
    assert made["name"] == NAME


def test_it_costs_what_its_parts_cost_in_the_hours_that_it_takes(scene: Scene) -> None:
    parts = {each.part: each.usd for each in price(scene.deployment, 2.0)}
    assert parts["Glue job main"] == pytest.approx(2 * 2.0 * 0.308)  # two workers of one DPU
    assert parts["KMS key"] == pytest.approx(2.0 / 730)
    assert sum(each.usd for each in price(scene.deployment, 4.0)) == pytest.approx(2 * sum(parts.values()))


def test_it_spends_nothing_where_nobody_can_be_asked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(ConfigError, match="nobody can be asked"):
        command._ask(scene, yes=False)
    assert f"eu-west-1 of account {NUMBER}: about" in capsys.readouterr().out
    command._ask(scene, yes=True)


def test_an_account_without_the_cdks_stack_is_refused_with_the_command(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: str) -> None:
        error = {"Error": {"Code": "ValidationError", "Message": "does not exist"}}
        raise ClientError(error, "DescribeStacks")

    monkeypatch.setattr(Account, "client", lambda *_: SimpleNamespace(describe_stacks=refused))
    with pytest.raises(CalveError) as caught:
        command._refuse(scene.deployment, scene.account, NUMBER, here=False)
    assert caught.value.fix == f"npx cdk bootstrap aws://{NUMBER}/eu-west-1"


def test_a_cluster_that_does_not_exist_yet_and_one_that_does_not_answer_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="no way in"):
        command._refuse(replace(scene.deployment, msk=Msk()), scene.account, NUMBER, here=True)
    monkeypatch.setattr("cli.prove.command.Cluster", lambda *_: Unreachable())
    with pytest.raises(CalveError, match="does not answer"):
        command._refuse(scene.deployment, scene.account, NUMBER, here=True)


class Unreachable:
    def topic_names(self) -> list[str]:
        raise CalveError("Kafka at b:9096 does not answer")


def test_without_kafka_and_registry_it_says_which_options_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cli.prove.command.embedded_stack", lambda: None)
    done = CliRunner().invoke(calve, ["prove", "--kafka", "b:9092"])
    assert isinstance(done.exception, ConfigError)
    assert "--registry URL" in str(done.exception)
    assert scenes.left() == {}


def test_a_check_that_cannot_be_judged_never_passes(scene: Scene) -> None:
    def denied(_: Scene) -> str:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": ""}}, "GetX")

    def gone(_: Scene) -> str:
        raise ClientError({"Error": {"Code": "NoSuchThing", "Message": ""}}, "GetX")

    def broken(_: Scene) -> str:
        return scene.outputs["https://link"]["a"]

    def elsewhere(_: Scene) -> str:
        raise NotCheckedError("not here")

    assert judge("a", denied, scene).state == judge("a", elsewhere, scene).state == "not checked"
    assert judge("a", gone, scene).state == "failed"
    found = judge("a", broken, scene)
    assert (found.state, "KeyError" in found.said, "link" in found.said) == ("failed", True, False)
    seen = judge("a", lambda _: "seen", scene)
    assert (seen.state, seen.said) == ("proved", "seen")


def test_the_jobs_sentence_must_name_every_table_as_open(scene: Scene) -> None:
    assert checks.acknowledged(scene) == "2 of 2 tables are open"
    scene.outputs[f"{NAME}-ingest"]["mainTables12"] = "1 of 2 tables are open; users: no topic"
    with pytest.raises(CalveError, match="users: no topic"):
        checks.acknowledged(scene)


class Athena:
    """Answers as Athena does, the first asking not yet."""

    def __init__(self, rows: dict[str, int], letters: dict[str, int], state: str = "SUCCEEDED") -> None:
        self._answers: list[list[list[str]]] = [
            [["_col0"], [str(rows[TRADES])]],
            [["reason", "_col1"], *([reason, str(count)] for reason, count in letters.items())],
            [["_col0"], [str(rows[USERS])]],
        ]
        self._status = {"State": state, "StateChangeReason": "no right"}
        self.queries: list[str] = []

    def start_query_execution(self, QueryString: str, **given: Any) -> dict[str, str]:
        assert given["WorkGroup"] == "w"
        assert given["QueryExecutionContext"] == {"Database": NAME.replace("-", "_")}
        self.queries.append(QueryString)
        return {"QueryExecutionId": str(len(self.queries))}

    def get_query_execution(self, **_: str) -> dict[str, Any]:
        return {"QueryExecution": {"Status": self._status}}

    def get_query_results(self, QueryExecutionId: str) -> dict[str, Any]:
        rows = self._answers[int(QueryExecutionId) - 1]
        return {"ResultSet": {"Rows": [{"Data": [{"VarCharValue": cell} for cell in row]} for row in rows]}}


def test_athena_must_have_exactly_the_rows_and_dead_letters(scene: Scene, clients: dict[str, Any]) -> None:
    rows = {table: fates.applied for table, fates in scene.fates.items()}
    letters = dict(scene.fates[TRADES].dead_lettered)
    clients["athena"] = Athena(rows, letters)
    assert "trades: 2,184 rows, 16 dead letters" in checks.athena(scene)
    assert clients["athena"].queries[1] == (
        'SELECT reason, count(*) FROM "trades__dead_letters" GROUP BY reason'
    )
    for wrong in (
        Athena(rows | {USERS: 499}, letters),
        Athena(rows | {TRADES: 2185}, letters),
        Athena(rows, letters | {"truncated": 1}),
        Athena(rows, letters, state="FAILED"),
    ):
        clients["athena"] = wrong
        assert judge("athena", checks.athena, scene).state == "failed"


def test_the_log_and_the_metric_must_have_exactly_the_rows(
    scene: Scene, clients: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "job_log", lambda _: "the log")

    def of(rows: int) -> None:
        lines = [
            {"message": json.dumps({"event": "round.committed", "rows": each})} for each in (rows - 1, 1)
        ]
        clients["logs"] = SimpleNamespace(
            get_paginator=lambda _: pages({"events": lines[:1]}, {"events": lines[1:]})
        )
        data = {"Datapoints": [{"Sum": float(rows - 1)}, {"Sum": 1.0}]}
        clients["cloudwatch"] = SimpleNamespace(get_metric_statistics=lambda **_: data)

    for check in (watching.log_lines, watching.metric_values):
        of(scene.applied)
        assert judge("a", check, scene).state == "proved"
        of(scene.applied - 1)
        assert judge("a", check, scene).state == "failed"


class Glue:
    """One run that ends when the control object names another generation; `follows`: whether another one does."""

    def __init__(self, *, follows: bool) -> None:
        self.follows, self.written = follows, list[Any]()

    def get_job(self, JobName: str) -> dict[str, Any]:
        arguments = {"--generation": "g", "--control": "s3://lake/_calve/jobs/main.json"}
        return {"Job": {"DefaultArguments": arguments, "LastModifiedOn": datetime(2026, 1, 1, tzinfo=UTC)}}

    def get_job_runs(self, JobName: str, **_: Any) -> dict[str, Any]:
        ended = checks.NO_GENERATION in self.written
        states = {"jr_old": "SUCCEEDED" if ended else "RUNNING"}
        if self.written[-1:] == ["g"] and self.follows:
            states["jr_new"] = "RUNNING"
        at = datetime(2026, 1, 2, tzinfo=UTC)
        runs = [{"Id": id, "JobRunState": state, "StartedOn": at} for id, state in states.items()]
        return {"JobRuns": [each | {"StartedOn": at + timedelta(n)} for n, each in enumerate(runs)]}

    def put_object(self, Body: bytes, **_: Any) -> None:
        self.written.append(json.loads(Body)["generation"])


@pytest.mark.parametrize("follows", [True, False])
def test_the_watchdog_must_start_another_run_after_one_that_ends(
    scene: Scene, clients: dict[str, Any], monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    monkeypatch.setattr(checks, "read_if_there", lambda *_: None)
    clients["glue"] = clients["s3"] = glue = Glue(follows=follows)
    found = judge("watchdog", checks.watchdog, scene)
    assert found.state == ("proved" if follows else "failed"), found.said
    assert glue.written == [checks.NO_GENERATION, "g"]  # given back, come what may


def test_the_report_hides_the_account_and_says_what_was_not_checked(scene: Scene) -> None:
    evidence = [
        Evidence("doctor", "proved", f"arn:aws:iam::{NUMBER}:role/a | ok"),
        Evidence("mail", "not checked", "b-1.shop:9096 does not answer"),
    ]
    text = page(scene, evidence, [Price("Glue, 2 DPU-hours", 0.5)])
    assert "# calve prove: 1 proved, 0 failed, 1 not checked" in text
    assert "arn:aws:iam::<account>:role/a \\| ok" in text
    assert "| <broker> does not answer |" in text
    assert NUMBER not in text
    assert "About 0.50 USD" in text


def test_what_another_account_holds_or_another_run_uses_is_left_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.note()
    monkeypatch.setattr(command, "_destroyed", lambda _: pytest.fail("it was destroyed"))
    monkeypatch.setattr(Scene, "of", lambda *_: replace(scene, number="444455556666"))
    done = CliRunner().invoke(calve, ["prove", "--clean"])
    assert isinstance(done.exception, ConfigError)
    assert f"account {NUMBER}" in str(done.exception)
    with scenes.held(NAME) as free:
        assert free
        assert CliRunner().invoke(calve, ["prove", "--clean"]).exit_code == 0
    assert set(scenes.left()) == {NAME}
