"""The embedded stack's jars: downloaded where they are missing, archives unpacked."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from cli.embedded.java import Java
from cli.embedded.layout import Layout
from cli.progress import Progress
from stacks.jars import Jar, pinned, present, retrieve


def download(layout: Layout, java: Java, progress: Progress) -> None:
    """Bring every jar that is missing; what arrives is checked before it is put in its place."""
    wanted = [jar for jar in pinned() if not present(jar, layout.jars)]
    if not wanted:
        return
    incoming = layout.state / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    total = sum(jar.size_bytes for jar in wanted)
    with progress.task("downloading jars", total=total, unit="bytes") as task:
        retrieve(
            wanted,
            incoming,
            java=[java.executable, *java.options],
            log=layout.logs / "download.log",
            on_poll=lambda: task.update(_arrived_bytes(incoming / "cache")),
        )
        task.update(total)
    for jar in wanted:
        _place(jar, incoming, layout.jars)
    shutil.rmtree(incoming)


def spark_jars(root: Path) -> list[Path]:
    """Return the jars to be named, all of them, in `spark.jars`."""
    folder = Layout(root).jars
    return [folder / jar.file for jar in pinned() if jar.class_path == "spark"]


def _arrived_bytes(cache: Path) -> int:
    sizes = 0
    for file in cache.rglob("*"):
        if file.name.endswith((".part", ".jar", ".tar.gz")):
            try:
                sizes += file.stat().st_size
            except FileNotFoundError:  # renamed since it was listed
                continue
    return sizes


def _place(jar: Jar, source: Path, folder: Path) -> None:
    target = folder / jar.file
    if not jar.is_archive:
        target.parent.mkdir(parents=True, exist_ok=True)
        (source / jar.file).replace(target)
        return
    unpacked = source / f"{jar.class_path}.unpacked"
    with tarfile.open(source / jar.file) as archive:
        # Python 3.11 has the filter from 3.11.4 on; the archive is one whose digest is locked.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(unpacked)  # noqa: S202 filtered by the line above
    (unpacked / ".unpacked").write_text(jar.sha256)
    shutil.rmtree(target.parent, ignore_errors=True)
    unpacked.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    unpacked.replace(target.parent)
