"""docs/operations.md has a paragraph for each alarm, and for nothing else."""

import re
from pathlib import Path

import pytest

from tests.synth.conftest import text

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
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


def test_the_paragraph_is_called_as_the_alarm_is(said):
    headings = {heading.lower(): heading for heading in paragraphs()}
    for name, told in said.items():
        (found,) = NAMED.findall(told)
        end = re.sub("^(TABLE|JOB|EXPORT|KEYS)-", "", headings[found])
        assert end in name or headings[found] in ("TABLE-VALUE", "EXPORT-failed"), name


@pytest.mark.parametrize("heading", paragraphs())
def test_a_paragraph_says_what_it_means_where_to_look_what_to_do_and_when_it_is_over(heading):
    starts = [line.split(":")[0] for line in paragraphs()[heading].split("\n- ")[1:]]
    assert [each for each in starts if each in ("Look", "Do", "Over")] == ["Look", "Do", "Over"]
