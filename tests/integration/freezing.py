"""Freezes what the current release stores into tests/releases/VERSION: `python -m pytest tests/integration/freezing.py`.

Its name keeps pytest from collecting it: it is run once for each release, by hand (docs/upgrade.md).
"""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from unittest.mock import patch

from calve.redrive import REQUEST, Request
from glue_jobs import lake
from tests.integration.engine import Engine
from tests.integration.frozen import BUDGET, RELEASES, SOURCE, Frozen, records
from tests.integration.producing import produce
from tests.releases.reading import READERS
from tests.releases.samples import AT, CONFIGURATION, samples

READABLE = {
    "write.parquet.compression-codec": "uncompressed",
    "write.metadata.compression-codec": "none",
    "write.metadata.metrics.default": "none",
}
"""In clear, and without bounds in manifests: the ids of cluster and topic can be exchanged for those of a later topic."""


def test_freeze(engine: Engine) -> None:
    frozen = Frozen(RELEASES / version("calve"))
    shutil.rmtree(frozen.folder, ignore_errors=True)
    frozen.folder.mkdir()
    shutil.copy(CONFIGURATION, frozen.folder / "calve.yaml")
    values = {
        kind: [{"text": text, "means": READERS[kind](text)} for text in texts]
        for kind, texts in samples().items()
    }
    (frozen.folder / "values.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    with patch.dict(lake.PROPERTIES, READABLE):
        freeze_table(engine, frozen)


def freeze_table(engine: Engine, frozen: Frozen) -> None:
    """A table of two rounds with rows and dead letters, and with a request that nobody has answered yet."""
    engine.create(frozen.name)
    produced = []
    for first, good, bad in ((0, 12, 3), (20, 8, 2)):
        batch = records(first, good=good, bad=bad)
        produce(engine.stack.bootstrap_servers, frozen.name, batch)
        engine.drain(engine.target(frozen.name, value=SOURCE, dead_letter_budget=BUDGET))
        produced += batch
    engine.table(frozen.name).set_properties({REQUEST: Request("frozen", AT, reason="malformed").to_json()})
    frozen.freeze(engine, produced)
