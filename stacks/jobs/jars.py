"""Pinned jars: downloaded from a Maven repository and verified by checksum."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen  # noqa: TID251 no credentials go along, and a mirror may redirect

import certifi

from calve.errors import Fatal
from stacks.base.downloads import downloads

LOCK = Path(__file__).with_name("jars.lock")
ATTEMPTS = 3
TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file of a class path."""

    class_path: str
    group: str
    artifact: str
    version: str
    type: str
    classifier: str
    size_bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The path below the folder of all jars."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.class_path}/{self.artifact}-{self.version}{classifier}.{self.type}"

    @property
    def path(self) -> str:
        """The path in a Maven repository."""
        folder = "/".join((self.group.replace(".", "/"), self.artifact, self.version))
        return f"{folder}/{self.file.rpartition('/')[2]}"

    @property
    def is_archive(self) -> bool:
        """Whether the file is unpacked into its class path's folder and then deleted."""
        return self.type == "tar.gz"


def jar_folder() -> Path:
    """The folder of the jars that this release pins; below it is a folder for each class path."""
    return downloads() / f"jars-{_sha256(LOCK)[:16]}"


def pinned(text: str | None = None) -> list[Jar]:
    found = []
    for line in (LOCK.read_text() if text is None else text).splitlines():
        if line and not line.startswith("#"):
            class_path, coordinates, size, sha256 = line.split()
            group, artifact, version, kind, classifier = (*coordinates.split(":"), "")[:5]
            found.append(Jar(class_path, group, artifact, version, kind, classifier, int(size), sha256))
    return found


def present(jar: Jar, folder: Path) -> bool:
    """Whether the jar exists. Fast: its content was verified at download."""
    if jar.is_archive:
        stamp = folder / jar.class_path / ".unpacked"
        return stamp.is_file() and stamp.read_text() == jar.sha256
    file = folder / jar.file
    return file.is_file() and file.stat().st_size == jar.size_bytes


def damaged(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    """The jars whose content differs from the lock. Absent and unpacked jars are skipped."""
    found = []
    for jar in jars:
        file = folder / jar.file
        if file.is_file() and (file.stat().st_size != jar.size_bytes or _sha256(file) != jar.sha256):
            found.append(jar)
    return found


def retrieve(
    wanted: Sequence[Jar], folder: Path, on_progress: Callable[[int], object] = lambda _bytes: None
) -> None:
    """Download jars to their places below `folder`, each only after its checksum was verified.

    Another process may download at the same time. Each moves whole files to their places.

    Raises:
        Fatal: a jar did not arrive, or its checksum differs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    with tempfile.TemporaryDirectory(dir=folder) as made:
        for number, jar in enumerate(wanted):
            arrived = Path(made) / Path(jar.file).name
            try:
                for size_bytes in _download(jar, arrived):
                    on_progress(done + size_bytes)
            except (OSError, HTTPException) as error:
                raise Fatal(
                    f"{len(wanted) - number} of {len(wanted)} jars could not be downloaded, {jar.file} first: {error}",
                    fix="check the network (a mirror: CALVE_MAVEN_REPOSITORY=<a Maven repository's URL>), then do the same again",
                ) from error
            if _sha256(arrived) != jar.sha256:
                raise Fatal(
                    f"damaged download, deleted: {arrived.name} (checksum differs from the lock)",
                    fix="do the same again",
                )
            _place(jar, arrived, folder)
            done += jar.size_bytes


def _download(jar: Jar, file: Path) -> Iterator[int]:
    """Write the file, and report progress."""
    url = f"{(os.environ.get('CALVE_MAVEN_REPOSITORY') or _repository()).rstrip('/')}/{jar.path}"
    trusted = ssl.create_default_context()
    trusted.load_verify_locations(certifi.where())  # Python's own certificates are missing on some machines
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urlopen(url, timeout=TIMEOUT_S, context=trusted) as answer, file.open("wb") as out:  # noqa: S310
                while chunk := answer.read(CHUNK_BYTES):
                    out.write(chunk)
                    yield out.tell()
        except (OSError, HTTPException):
            if attempt == ATTEMPTS:
                raise
        else:
            return


def installed(package: str) -> Path:
    """The folder of a package, which is not imported. Raises ModuleNotFoundError: it is not installed."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {package}", name=package)
    return Path(found.origin).parent


@cache
def _repository() -> str:
    """The address from which Spark's Ivy downloads: Maven Central."""
    (ivy,) = (installed("pyspark") / "jars").glob("ivy-*.jar")
    with zipfile.ZipFile(ivy) as jar:
        properties = jar.read("org/apache/ivy/core/settings/repository.properties").decode()
    return next(line for line in properties.splitlines() if "= https:" in line).partition("= ")[2]


def _place(jar: Jar, arrived: Path, folder: Path) -> None:
    target = folder / jar.file
    target.parent.mkdir(exist_ok=True)
    if not jar.is_archive:
        arrived.replace(target)
        return
    unpacked = arrived.with_suffix(".unpacked")
    with tarfile.open(arrived) as archive:
        # Python 3.11 has the filter since 3.11.4; the archive's digest is locked.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(unpacked)  # noqa: S202 filtered by the line above
    (unpacked / ".unpacked").write_text(jar.sha256)
    shutil.rmtree(target.parent)
    unpacked.replace(target.parent)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
