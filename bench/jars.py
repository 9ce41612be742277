"""The jars of Kafka Connect: pinned in `connect.lock`, downloaded as those of the embedded stack are."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from cli.embedded.layout import Layout
from cli.progress import Progress
from stacks.jobs.jars import pinned, present, retrieve

LOCK = Path(__file__).with_name("connect.lock")


def connect_class_path(root: Path) -> str:
    """The worker's class path; Hadoop's classes, which Parquet's need, are those that PySpark has."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    hadoop = sorted((Path(pyspark.origin).parent / "jars").glob("hadoop-client-*.jar"))
    return ":".join([f"{_folder(root) / 'connect'}/*", *map(str, hadoop)])


def _folder(root: Path) -> Path:
    return Layout(root).state / "bench"


def download(root: Path, progress: Progress) -> None:
    """Bring the jars that are missing."""
    folder = _folder(root)
    if wanted := [jar for jar in pinned(LOCK.read_text()) if not present(jar, folder)]:
        with progress.task("downloading Kafka Connect"):
            retrieve(wanted, folder)
