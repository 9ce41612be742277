"""The parts of a job are deployed like jobs, and handed over together under the name of the whole."""

import json
from dataclasses import replace

import pytest
from aws_cdk import App

from calve.config.deployment import Deployment, JobDeployment, LakeDeployment
from calve.config.job import Share
from stacks.app import build
from stacks.base.bundling import Runtime
from tests.synth.deployments import job

WHOLE = job("main", *(f"topic{n}" for n in range(8)))


def parts(count):
    return [
        JobDeployment(
            replace(
                WHOLE,
                job=f"main-{n}",
                tables=tuple(each for each in WHOLE.tables if Share("main", n, count).has(each.topic)),
                share=Share("main", n, count),
            )
        )
        for n in range(1, count + 1)
    ]


def synthesized(folder, *jobs):
    app = App(outdir=str(folder), context={"aws:cdk:bundling-stacks": []})
    build(app, Deployment("trading", jobs, LakeDeployment("trading")), runtime=Runtime())
    app.synth()
    return json.loads((folder / "trading-ingest.template.json").read_text())["Resources"]


def of_kind(resources, kind):
    return {id: each for id, each in resources.items() if each["Type"] == kind}


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return synthesized(tmp_path_factory.mktemp("one"), JobDeployment(WHOLE))


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return synthesized(tmp_path_factory.mktemp("three"), *parts(3))


def test_a_change_of_the_number_of_parts_is_an_update_of_one_hand_over(one, three):
    before, after = (of_kind(each, "Custom::CalveHandOver") for each in (one, three))
    assert list(before) == list(after)
    (id,) = after
    old, new = before[id]["Properties"], after[id]["Properties"]
    assert old["JobName"] == new["JobName"] == "trading-main"
    assert "Parts" not in old
    jobs = of_kind(three, "AWS::Glue::Job")
    assert set(jobs) <= set(after[id]["DependsOn"])
    assert json.loads(new["Parts"]) == {
        each["Properties"]["Name"]: [
            f"_calve/jobs/main-{n}.json",
            each["Properties"]["DefaultArguments"]["--generation"],
        ]
        for n, each in enumerate(jobs.values(), 1)
    }


def test_each_part_is_awaited_after_the_hand_over_of_all(three):
    (hand_over,) = of_kind(three, "Custom::CalveHandOver")
    waits = of_kind(three, "Custom::CalveAcknowledgement").values()
    assert [each["Properties"]["JobName"] for each in waits] == [f"trading-main-{n}" for n in (1, 2, 3)]
    assert all(hand_over in each["DependsOn"] for each in waits)


def test_the_hand_over_may_end_parts_that_are_gone_and_start_those_that_are_there(three):
    policies = [
        each["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
        for id, each in of_kind(three, "AWS::IAM::Role").items()
        if id.startswith("ControlHandOverRole")
    ]
    (statements,) = policies
    (stopping,) = [each for each in statements if "glue:BatchStopJobRun" in each["Action"]]
    assert json.dumps(stopping["Resource"]).count(":job/trading-*") == 1
    (starting,) = [each for each in statements if "glue:StartJobRun" in each["Action"]]
    assert all(f"job/trading-main-{n}" in json.dumps(starting["Resource"]) for n in (1, 2, 3))
    assert "*" not in json.dumps(starting["Resource"])
