"""Freezes what the current release stores into tests/releases/VERSION: `python -m pytest tests/integration/support/freezing.py`.

Its name keeps pytest from collecting it: it is run once for each release, by hand (docs/upgrade.md).
"""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from unittest.mock import patch

import pytest

from calve.requests.redrive import Request
from calve.table import summary
from calve.table.summary import REDRIVE
from tests.integration.support.engine import Engine
from tests.integration.support.frozen import RELEASES, SETTINGS, Frozen, records
from tests.integration.support.records.producing import produce
from tests.releases.reading import READERS
from tests.releases.samples import AT, CONFIGURATION, samples

READABLE = {
    "write.parquet.compression-codec": "uncompressed",
    "write.metadata.compression-codec": "none",
    "write.metadata.metrics.default": "none",
}
"""In clear, and without bounds in manifests: the ids of cluster and topic can be exchanged for those of a later topic."""
FOLDER = RELEASES / version("calve")


def test_freeze_values() -> None:
    FOLDER.mkdir(exist_ok=True)
    shutil.copy(CONFIGURATION, FOLDER / "calve.yaml")
    values = {
        kind: [{"text": text, "means": READERS[kind](text)} for text in texts]
        for kind, texts in samples().items()
    }
    (FOLDER / "values.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize("kind", SETTINGS)
def test_freeze_a_table(engine: Engine, kind: str) -> None:
    """A table of two rounds with rows and dead letters; one that appends has a request that nobody has answered yet."""
    frozen = Frozen(FOLDER, kind)
    shutil.rmtree(frozen.lake, ignore_errors=True)
    engine.create(frozen.name)
    produced = []
    with patch.dict(summary.PROPERTIES, READABLE):
        for first, good, bad in ((0, 12, 3), (8, 8, 2)):
            batch = records(first, good=good, bad=bad)
            produce(engine.stack.bootstrap_servers, frozen.name, batch)
            engine.drain(engine.target(frozen.name, **frozen.settings))
            produced += batch
    if kind == "append":
        request = Request("frozen", AT, reason="malformed")
        engine.table(frozen.name).set_properties({REDRIVE: request.to_json()})
    frozen.freeze(engine, produced)
