"""docs/operations.md has a paragraph for each alarm, and for nothing else."""

import re
from pathlib import Path

import pytest

from tests.alarms import FILE
from tests.synth.alarms_file import written
from tests.synth.conftest import text

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
OF_AWS_ALONE = {
    "job-not-started",  # by its scheduler
    "export-not-started",
    "maintenance-not-started",
    "maintenance-ended",  # by Glue
    "export-mail-undelivered",  # by SNS
    "export-mail-bounced",  # by SES
}
"""AWS writes their metrics of what happens there, and nothing here can."""
OF_MAILS = ("TABLE-VALUE", "TABLE-stopped", "EXPORT-failed", "MAINTENANCE-ended")
NAMED = re.compile(r"docs/operations\.md#([a-z_-]+)")


@pytest.fixture
def said(synthesized):
    """What each alarm, and each rule that mails, tells: name -> text."""
    told = {}
    for stack in synthesized.templates:
        for alarm in synthesized.find(stack, "AWS::CloudWatch::Alarm").values():
            told[text(alarm["AlarmName"])] = alarm["AlarmDescription"]
        if stack.endswith("-monitoring"):
            for name, rule in synthesized.find(stack, "AWS::Events::Rule").items():
                told[name] = rule["Targets"][0]["InputTransformer"]["InputTemplate"]
    return told


def paragraphs():
    return dict(part.split("\n", 1) for part in PAGE.read_text().split("\n### ")[1:])


def test_each_alarm_names_a_paragraph_and_each_paragraph_has_an_alarm(said):
    named = {name: NAMED.findall(told) for name, told in said.items()}
    assert [name for name, found in named.items() if len(found) != 1] == []
    assert {found for (found,) in named.values()} == {heading.lower() for heading in paragraphs()}


def test_the_definitions_that_other_tests_go_by_are_those_of_the_templates(synthesized):
    assert FILE.read_text() == written(synthesized), "write it again: python -m tests.synth.alarms_file"


def test_each_alarm_is_brought_about_by_a_test():
    tests = "\n".join(file.read_text() for file in PAGE.parents[1].glob("tests/*/**/test_*.py"))
    provoked = set(re.findall(r'\b(?:goes_off|failed|put_aside|mailed)\(\s*"([a-z-]+)"', tests))
    assert provoked | OF_AWS_ALONE == {heading.lower() for heading in paragraphs()}
    assert provoked & OF_AWS_ALONE == set()


def test_the_paragraph_is_called_as_the_alarm_is(said):
    headings = {heading.lower(): heading for heading in paragraphs()}
    for name, told in said.items():
        (found,) = NAMED.findall(told)
        end = re.sub("^(TABLE|JOB|EXPORT|KEYS)-", "", headings[found])
        assert end in name or headings[found] in OF_MAILS, name


@pytest.mark.parametrize("heading", paragraphs())
def test_a_paragraph_says_what_it_means_where_to_look_what_to_do_and_when_it_is_over(heading):
    starts = [line.split(":")[0] for line in paragraphs()[heading].split("\n- ")[1:]]
    assert [each for each in starts if each in ("Look", "Do", "Over")] == ["Look", "Do", "Over"]
