"""CloudFormation gets one answer to every request, whatever the work came to."""

import json
import time
from collections.abc import Iterator

import pytest

from calve.errors import CalveError, ConfigError, Retryable
from lambdas import custom_resource
from lambdas.custom_resource import ANSWER_MARGIN_S, NEVER_MADE, fitting, serve
from tests.unit.lambdas.cloudformation import CloudFormation, cloudformation
from tests.unit.lambdas.context import Context


@pytest.fixture
def cfn(monkeypatch) -> Iterator[CloudFormation]:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with cloudformation() as side:
        yield side


def identify(properties) -> str:
    if "Name" not in properties:
        raise ConfigError("no Name", fix="give one")
    return str(properties["Name"])


def done(request, time_left_s):
    return {"Arn": "arn:thing"}


def failing(error: Exception):
    def act(request, time_left_s):
        raise error

    return act


def test_success_carries_the_id_the_attributes_and_the_requests_own_ids(cfn) -> None:
    assert serve(cfn.request("Create", {"Name": "a"}), Context(), done, identify=identify) is None
    assert cfn.answers == [
        {
            "Status": "SUCCESS",
            "Reason": "",
            "PhysicalResourceId": "a",
            "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/calve-ingest/1",
            "RequestId": "request-1",
            "LogicalResourceId": "Resource",
            "Data": {"Arn": "arn:thing"},
        }
    ]
    assert cfn.content_types == [""]  # the URL's signature covers it


def test_a_failure_says_what_went_wrong_its_cure_and_where_the_log_is(cfn) -> None:
    act = failing(CalveError("the table is gone", fix="make it"))
    serve(cfn.request("Create", {"Name": "a"}), Context(), act, identify=identify)
    [answer] = cfn.answers
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("FAILED", "a")
    assert answer["Reason"] == "the table is gone Fix: make it (log stream 2026/11/21/[1]abc)"


def test_a_fault_of_any_kind_is_answered_and_stays_below_cloudformations_limit(cfn) -> None:
    serve(cfn.request("Create", {"Name": "a"}), Context(), failing(KeyError("x" * 9000)), identify=identify)
    [answer] = cfn.answers
    assert answer["Reason"].startswith("KeyError: ")
    assert len(str(answer)) < 4096


@pytest.mark.parametrize("letter", ["a", "é", "\N{SNOWFLAKE}", "\N{ICE CUBE}"])
def test_a_text_is_cut_to_the_bytes_that_it_takes_in_an_answer(letter: str) -> None:
    cut = fitting(letter * 5000)
    assert letter * 5000 != cut
    assert 980 < len(json.dumps(cut)) <= 1000
    assert fitting(letter * 50) == letter * 50


def test_what_was_never_made_is_deleted_without_work(cfn) -> None:
    serve(cfn.request("Create", {}), Context(), done, identify=identify)
    assert [(a["Status"], a["PhysicalResourceId"]) for a in cfn.answers] == [("FAILED", NEVER_MADE)]
    act = failing(AssertionError("nothing to delete"))
    serve(cfn.request("Delete", {}, PhysicalResourceId=NEVER_MADE), Context(), act, identify=identify)
    assert cfn.answers[1]["Status"] == "SUCCESS"


def test_deleting_keeps_the_id_that_cloudformation_names(cfn) -> None:
    serve(
        cfn.request("Delete", {"Name": "new"}, PhysicalResourceId="old"), Context(), done, identify=identify
    )
    assert cfn.answers[0]["PhysicalResourceId"] == "old"


def test_a_failed_update_with_bad_properties_keeps_the_id_so_that_nothing_is_deleted(cfn) -> None:
    serve(cfn.request("Update", {}, PhysicalResourceId="old"), Context(), done, identify=identify)
    assert (cfn.answers[0]["Status"], cfn.answers[0]["PhysicalResourceId"]) == ("FAILED", "old")


def test_the_work_is_told_how_long_it_may_take(cfn) -> None:
    told = []
    serve(
        cfn.request("Create", {"Name": "a"}),
        Context(left_s=100),
        lambda request, time_left_s: told.append(time_left_s),
        identify=identify,
    )
    assert told == [pytest.approx(100 - ANSWER_MARGIN_S)]


def test_an_answer_that_is_not_taken_is_given_again_and_at_last_raised_for_lambda_to_repeat(cfn) -> None:
    cfn.refuse = custom_resource.ATTEMPTS - 1
    serve(cfn.request("Create", {"Name": "a"}), Context(), done, identify=identify)
    assert len(cfn.answers) == 1
    cfn.refuse = custom_resource.ATTEMPTS
    with pytest.raises(Retryable, match="HTTP 503") as raised:
        serve(cfn.request("Create", {"Name": "a"}), Context(), done, identify=identify)
    assert "SECRET" not in str(raised.value)
