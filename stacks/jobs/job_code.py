"""The files of a Glue job: our code as one zip, its settings as one JSON file, and the jars that Glue lacks."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from aws_cdk import DefaultStackSynthesizer, IStackSynthesizer, aws_s3_assets
from constructs import Construct

from calve.config.job import Job, Registry
from stacks.base.bundling import ROOT, Bundle, Runtime
from stacks.jobs.jars import jar_folder, pinned, present, retrieve

SCRIPT = ROOT / "glue_jobs" / "ingest.py"
COLUMNAR = Bundle(
    ROOT / "glue_jobs" / "engines" / "columnar" / "requirements.txt",
    Runtime(python="3.13", architecture="x86_64"),
    pruned=("bin", "**/tests"),
)
"""Packages that the columnar engine needs and Glue 6.0 lacks."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


class JobCode(Construct):
    """The files that all jobs of a deployment share.

    columnar: packages that ingest jobs need and Glue lacks; None if the host has them.
    jars: those that Glue lacks, and Iceberg, unless the host has it.
    """

    def __init__(self, scope: Construct, id: str, *, runtime: Runtime) -> None:
        super().__init__(scope, id)
        self.script = aws_s3_assets.Asset(self, "Script", path=str(SCRIPT))
        with tempfile.TemporaryDirectory() as folder:  # an asset is copied when it is made
            archive = Path(folder) / "calve.zip"
            _zip(archive)
            self.packages = aws_s3_assets.Asset(self, "Packages", path=str(archive))
        jars = job_jars([LOGIN] if runtime.native else [LOGIN, *ICEBERG])
        self.jars = [aws_s3_assets.Asset(self, jar.name, path=str(jar)) for jar in jars]

        self.columnar = None
        if not runtime.native:
            folder = str(COLUMNAR.requirements.parent)
            self.columnar = aws_s3_assets.Asset(self, "Columnar", path=folder, **COLUMNAR.options(self))


FOLDER = "calve/{}/"
"""Of a deployment's jobs, in the bootstrap bucket."""


def in_folder(deployment: str) -> IStackSynthesizer:
    """A stack whose files go into the folder, so that a role can name all of them, also those of the release before."""
    return DefaultStackSynthesizer(bucket_prefix=FOLDER.format(deployment))


class JobSettings(Construct):
    """The resolved settings of one job as a file, and the files that they name.

    assets: files that Glue puts into the job's working folder. file_name: of the settings in that folder.
    """

    def __init__(self, scope: Construct, id: str, *, job: Job) -> None:
        super().__init__(scope, id)
        self.assets: list[aws_s3_assets.Asset] = []
        job = replace(job, kafka=replace(job.kafka, ca_file=self._certificates("Kafka", job.kafka.ca_file)))
        if isinstance(job.registry, Registry):
            authorities = self._certificates("Registry", job.registry.ca_file)
            job = replace(job, registry=replace(job.registry, ca_file=authorities))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{job.job}.json"
            file.write_text(job.to_json())
            self.file_name = self._ship("File", file)

    def _certificates(self, of: str, file: str | None) -> str | None:
        return self._ship(f"{of}Authorities", Path(file)) if file else None

    def _ship(self, id: str, file: Path) -> str:
        asset = aws_s3_assets.Asset(self, id, path=str(file))
        self.assets.append(asset)
        return f"{asset.asset_hash}{file.suffix}"


def generation(definition: object) -> str:
    """A hash of this definition, including the hashes of code and settings."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]


def _zip(target: Path) -> None:
    """`calve` and `glue_jobs`; equal sources give equal bytes.

    Settings are validated on the operator's side: a job reads resolved ones, and pydantic's native code does not work in a zip.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("calve", "glue_jobs"):
            for file in sorted((ROOT / package).rglob("*.py")):
                name = file.relative_to(ROOT)
                if name.parts[:2] != ("calve", "settings"):
                    entry = zipfile.ZipInfo(name.as_posix(), _EPOCH)
                    entry.external_attr = 0o644 << 16
                    archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


LOGIN = "aws-msk-iam-auth"
ICEBERG = ("iceberg-spark-runtime-4.1_2.13", "iceberg-aws-bundle")
"""Not Glue's own: that is Amazon's build, and the jobs use classes that are no interface."""


def job_jars(artifacts: Collection[str]) -> list[Path]:
    """The jars from the user's cache; missing ones are downloaded. Raises Fatal: a jar could not be downloaded."""
    folder = jar_folder()
    brought = [jar for jar in pinned() if jar.class_path == "spark" and jar.artifact in artifacts]
    if missing := [jar for jar in brought if not present(jar, folder)]:
        retrieve(missing, folder)
    return [folder / jar.file for jar in brought]
