"""`announce` of a table in calve.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.config.job import Job, Kafka, Registry, Table
from calve.config.publishing import Announce
from calve.config.steps import Flatten, Mask, Rule, masked_columns
from calve.errors import ConfigError
from calve.settings import load
from calve.settings.resolving import StackDefaults

STACK = StackDefaults(Kafka("b:9092"), Registry("http://r"), warehouse="s3://lake")


def tables(folder: Path, text: str) -> dict[str, Table]:
    file = folder / "calve.yaml"
    file.write_text(f"name: shop\nmasking: {{secret: 'aws:keys'}}\ntables:\n{text}")
    (job,) = load(file, stack=STACK)
    assert Job.from_json(job.to_json()) == job
    return {each.name: each for each in job.tables}


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        tables(folder, text)
    return " ".join(caught.value.message.split())


def test_a_column_is_counted_and_values_of_it_are_mailed(tmp_path):
    found = tables(
        tmp_path,
        "  trades: {topic: t}\n"
        "  sides: {topic: t, announce: {count_by: side}}\n"
        "  flagged: {topic: t, announce: {count_by: flag, alert_on: [LARGE_TRADE, odd-1]}}\n",
    )
    assert (found["trades"].announce, found["trades"].count_by) == (None, None)
    assert found["sides"].announce == Announce("side")
    assert found["flagged"].announce == Announce("flag", ("LARGE_TRADE", "odd-1"))
    assert found["flagged"].count_by == "flag"


@pytest.mark.parametrize(
    "table",
    [
        "steps: [{mask: {email: {partial: domain}}}], announce: {count_by: email}",
        "steps: [{mask: {who.sex: hash}}, flatten], announce: {count_by: who_sex}",
        "steps: [{mask: {side: keep}}], announce: {count_by: side}",
        "key: {column: id}, announce: {count_by: id}",
    ],
)
def test_what_is_personal_is_not_counted_by(tmp_path, table):
    told = refused(tmp_path, f"  t: {{topic: t, {table}}}\n")
    assert "tables.t.announce.count_by is masked, or the record key" in told


def test_columns_of_a_table_that_masks_others_may_be_counted_by(tmp_path):
    text = "  t: {topic: t, steps: [{mask: {email: hash}}], announce: {count_by: side}}\n"
    assert tables(tmp_path, text)["t"].count_by == "side"


def test_tags_say_what_is_masked_too():
    steps = (Mask(tags={"PII": Rule("hash")}), Flatten(separator="__"))
    assert masked_columns(steps, {"who.sex": ("PII",), "side": ("FUN",)}) == {"who.sex", "who__sex"}


@pytest.mark.parametrize(
    ("announce", "problem"),
    [
        ("{}", "announce.count_by is missing"),
        ("{count_by: _kafka}", "_kafka"),
        ("{count_by: a.b}", '"a.b" is not a column name'),
        ("{count_by: a, alert_on: ['two words']}", '"two words" is not a value'),
        ("{count_by: a, alert_on: ['<b>']}", '"<b>" is not a value'),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, announce, problem):
    assert problem in refused(tmp_path, f"  t: {{topic: t, announce: {announce}}}\n")


def test_tables_of_an_expression_are_counted_but_nobody_is_mailed(tmp_path):
    told = refused(tmp_path, "  '{topic}': {topics: 'a.*', announce: {count_by: a, alert_on: [X]}}\n")
    assert "announce.alert_on cannot be used with `topics`" in told
