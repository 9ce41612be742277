"""The jars that a job brings to Glue: decoding and signing on to MSK do not depend on what a release of Glue has."""

from __future__ import annotations

from pathlib import Path

from stacks.jars import pinned, present, retrieve
from stacks.wheels import ROOT

JARS = ROOT / ".calve" / "jars"
BROUGHT = {"spark-avro_2.13", "aws-msk-iam-auth"}


def job_jars(folder: Path = JARS) -> list[Path]:
    """The files, which lie where the embedded stack has its jars; those that are missing are downloaded.

    Raises:
        Fatal: a jar could not be downloaded.
    """
    brought = [jar for jar in pinned() if jar.class_path == "spark" and jar.artifact in BROUGHT]
    if missing := [jar for jar in brought if not present(jar, folder)]:
        retrieve(missing, folder)
    return [folder / jar.file for jar in brought]
