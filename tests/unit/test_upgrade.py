"""This release reads whatever the releases in tests/releases have stored, and understands it as they did (docs/upgrade.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calve.errors import Suspended
from calve.requests import forget, redrive
from calve.settings import load_deployment
from calve.table.summary import FORMAT, decode
from tests.releases.reading import READERS
from tests.releases.samples import samples

FOLDERS = sorted(path.parent for path in (Path(__file__).parents[1] / "releases").glob("*/values.json"))
VALUES = [
    pytest.param(kind, each, id=f"{folder.name}-{kind}-{number}")
    for folder in FOLDERS
    for kind, found in json.loads((folder / "values.json").read_text(encoding="utf-8")).items()
    for number, each in enumerate(found)
]


def test_there_is_a_release_to_upgrade_from() -> None:
    assert FOLDERS


@pytest.mark.parametrize(("kind", "stored"), VALUES)
def test_a_stored_value_means_what_it_meant(kind: str, stored: dict[str, Any]) -> None:
    assert_holds(READERS[kind](stored["text"]), stored["means"], kind)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_configuration_makes_the_job_that_it_made(folder: Path) -> None:
    """A default that changed would change what a deployed table does without a word in calve.yaml."""
    stored = json.loads((folder / "values.json").read_text(encoding="utf-8"))["job"]
    made = load_deployment(folder / "calve.yaml").jobs
    for job, frozen in zip(made, stored, strict=True):
        assert_holds(json.loads(job.settings.to_json()), frozen["means"], "job")


def test_every_kind_of_stored_value_is_sampled() -> None:
    assert samples().keys() == READERS.keys()


@pytest.mark.parametrize("kind", READERS)
def test_a_release_reads_what_it_writes(kind: str) -> None:
    for text in samples()[kind]:
        assert READERS[kind](text)


def test_a_position_of_a_newer_release_is_refused_by_name() -> None:
    newest = json.loads(samples()["position"][-1]) | {"calve.format": str(FORMAT + 1)}
    with pytest.raises(Suspended) as caught:
        decode(newest)
    assert caught.value.code == "format_too_new"
    assert caught.value.fix == "run the release that wrote the table, or a newer one"


@pytest.mark.parametrize(("kind", "request_"), [("redrive", redrive.Request), ("forget", forget.Request)])
def test_a_request_of_a_newer_release_is_refused_as_one(kind: str, request_: Any) -> None:
    newer = json.loads(samples()[f"{kind}_request"][0]) | {"unheard_of": 1}
    with pytest.raises(ValueError, match=r"unheard_of|not one that this release understands"):
        request_.pending({request_.NAME: json.dumps(newer)})


def assert_holds(found: Any, meant: Any, path: str) -> None:
    """What was meant is what is found; a newer release may know more of it."""
    if isinstance(meant, dict):
        assert isinstance(found, dict), path
        for key, value in meant.items():
            assert key in found, f"{path}.{key}"
            assert_holds(found[key], value, f"{path}.{key}")
    elif isinstance(meant, list):
        assert isinstance(found, list), path
        assert len(found) == len(meant), path
        for number, (one, other) in enumerate(zip(found, meant, strict=True)):
            assert_holds(one, other, f"{path}[{number}]")
    else:
        assert found == meant, path
