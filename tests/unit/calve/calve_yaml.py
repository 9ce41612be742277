"""A calve.yaml of a test: the jobs that its tables make, or all that is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.config.job import Job, Kafka, Registry
from calve.errors import ConfigError
from calve.settings import load
from calve.settings.resolving import StackDefaults

STACK = StackDefaults(Kafka("127.0.0.1:9092"), Registry("http://127.0.0.1:8081"), "s3://lake")


def jobs(folder: Path, tables: str, above: str = "", *, overlay: str | None = None) -> tuple[Job, ...]:
    """Those of a file with these tables, and with lines above them. overlay: what an environment lays over it."""
    file = folder / "calve.yaml"
    file.write_text(f"name: t\n{above}tables:\n{tables}", encoding="utf-8")
    if overlay is None:
        return load(file, stack=STACK)
    (folder / "calve.prod.yaml").write_text(overlay, encoding="utf-8")
    return load(file, env="prod", stack=STACK)


def refused(folder: Path, tables: str, above: str = "") -> list[str]:
    """Every problem, as key path and sentence."""
    with pytest.raises(ConfigError) as caught:
        jobs(folder, tables, above)
    head, *lines = str(caught.value).replace(f"{folder}/", "").splitlines()
    assert head.startswith("calve.yaml: ")
    return [" ".join(line.split()[1:]) for line in lines]
