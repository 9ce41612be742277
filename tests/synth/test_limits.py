"""Deployments of any size fit AWS's limits, with the longest names that calve.yaml takes."""

import json
from dataclasses import replace

import pytest
from aws_cdk import App

from calve.config.deployment import UNKNOWN_SERVERS, Deployment, JobDeployment, LakeDeployment, Msk
from calve.config.job import Entry, Share, Table, part_name
from calve.config.publishing import Announce
from calve.names import TableName
from calve.settings.entries.deploy import MOST_PARTS
from stacks.app import build
from stacks.base.bundling import Runtime
from stacks.jobs.ingest_role import named as named_topics
from tests.synth.deployments import CATALOG, MADE, SNOWFLAKE, WEEKLY, job
from tests.synth.limits import NAME_OF_A_STACK, RULES_OF_A_BUS, broken

NAME, JOB, EXPORT, TABLE, TOPIC = 40, 40, 40, 200, 249
"""Characters of the longest names that are taken (`calve.settings.fields`, `calve.names`)."""
MAIL = "a-recipient-with-a-long-address-{}@mail.example.com"


def named(number: int, length: int) -> str:
    return f"n{number:0{length - 1}}"


def deployment(
    tables: int, *, jobs: int = 1, exports: int = 1, long: bool = False, parts: bool = False
) -> Deployment:
    """Everything that a deployment can have, for this many tables. parts: the jobs are those of one entry."""
    of_table, of_topic = (TABLE, TOPIC) if long else (12, 12)
    kept = [
        Table(named(n, of_table), named(n, of_topic), announce=Announce("status", ("LOST",)))
        for n in range(tables)
    ]
    base = job("main", servers=UNKNOWN_SERVERS, auth="msk_iam")
    shares = [Share(named(0, JOB), n + 1, jobs) if parts else None for n in range(jobs)]
    pattern = Table("p_{1}", r"p\.(.*)")
    of_jobs = tuple(
        JobDeployment(
            replace(
                base,
                job=part_name(share.of, share.part) if share else named(n, JOB if long else 8),
                tables=tuple(each for each in kept if share.has(each.topic))
                if share
                else tuple(kept[n::jobs]),
                share=share,
                patterns=(pattern,),
                entries=(Entry("p_{1}", r"p\.(.*)", pattern=True),),
            ),
            schedule="rate(6 hours)" if n % 2 and not parts else None,
        )
        for n, share in enumerate(shares)
    )
    recipients = tuple(map(MAIL.format, range(3)))
    of_exports = tuple(
        replace(WEEKLY, name=named(n, EXPORT if long else 8), table=kept[0].name, recipients=recipients)
        for n in range(exports)
    )
    name = named(1, NAME) if long else f"sized{tables}"
    assert MADE.publish
    return replace(
        MADE,
        name=name,
        jobs=of_jobs,
        exports=of_exports,
        msk=Msk(),
        lake=LakeDeployment("lake", bucket="b" * 63),
        publish=replace(
            MADE.publish,
            tables=tuple(TableName("trading", each.name) for each in kept),
            iceberg_rest=CATALOG,
            snowflake=SNOWFLAKE,
        ),
    )


def templates(folder, of):
    app = App(outdir=str(folder), context={"aws:cdk:bundling-stacks": []})
    build(app, of, runtime=Runtime())
    app.synth()
    return {
        file.name.removesuffix(".template.json"): json.loads(file.read_text())
        for file in folder.glob("*.template.json")
    }


def beyond(found):
    """Of each stack, the limits that it is beyond."""
    return {name: problems for name, template in found.items() if (problems := broken(template))}


def test_topics_that_are_too_many_for_a_policy_are_named_by_their_beginnings():
    few = ["orders", "shop.*", "users"]
    assert named_topics(few) == few
    many = [f"shop.{kind}.{n:04}" for kind in ("orders", "users") for n in range(1_000)]
    assert named_topics(many) == ["shop.orders.0*", *(f"shop.users.0{n}*" for n in range(10))]
    assert named_topics([f"{n:03}" for n in range(1_000)]) == [f"{n}*" for n in range(10)]
    assert named_topics([chr(33 + n) * 2 for n in range(90)]) == ["*"]


@pytest.mark.parametrize(
    "of",
    [
        deployment(16),
        deployment(3_000, jobs=12, exports=40, long=True),
        *(pytest.param(deployment(n), marks=pytest.mark.long) for n in (1, 100, 1_000, 3_000)),
        *(
            pytest.param(deployment(3_000, jobs=n, long=True, parts=True), marks=pytest.mark.long)
            for n in (8, MOST_PARTS)
        ),
    ],
    ids=["16", "the largest", "1", "100", "1000", "3000", "8 parts", "the most parts"],
)
def test_a_deployment_fits_the_limits_of_aws(tmp_path, of):
    found = templates(tmp_path, of)
    assert beyond(found) == {}
    assert all(len(name) <= NAME_OF_A_STACK for name in found)
    kinds = [each["Type"] for template in found.values() for each in template["Resources"].values()]
    assert kinds.count("AWS::Events::Rule") < RULES_OF_A_BUS / 10
