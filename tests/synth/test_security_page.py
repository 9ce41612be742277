"""docs/security.md says of every role what its holder can do."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.synth.deployments import IMPORTED, MADE, MSK, REMOVABLE, SHOP

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
DEPLOYMENTS = (MADE, MSK, IMPORTED, SHOP, REMOVABLE)
KINDS = ("AWS::IAM::Role", "AWS::IAM::ManagedPolicy", "AWS::IAM::User", "AWS::IAM::Group")


def test_every_role_of_the_templates_is_on_the_page_and_no_other(synthesized):
    rows = re.findall(r"^\| `([a-z]+/[A-Za-z]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, count in Counter(rows).items() if count > 1] == []
    assert {*rows} == {*roles(synthesized)}


def roles(synthesized):
    """`stack/role` of all deployments, with JOB for the names of their jobs."""
    jobs = {job.settings.job for deployment in DEPLOYMENTS for job in deployment.jobs}
    for name in synthesized.templates:
        stack = name.removesuffix("-template").rpartition("-")[2]
        for kind in KINDS:
            for id_ in synthesized.find(name, kind):
                role = re.sub(r"[0-9A-F]{8}$", "", id_)
                job = next((each for each in jobs if re.match(rf"{each}(Schedule)?Role$", role)), "")
                yield f"{stack}/{role.replace(job, 'JOB', 1) if job else role}"
