"""Downloads the pinned jars with the Ivy inside PySpark, and proves them by their checksums."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from calve.errors import Fatal
from cli.embedded.java import Java
from cli.embedded.layout import Layout
from cli.embedded.processes import tail
from cli.progress import Progress

LOCK = Path(__file__).with_name("jars.lock")
ATTEMPTS = 3
POLL_S = 0.2
SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false"{root}/></resolvers></ivysettings>"""


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
    def is_archive(self) -> bool:
        """Whether the file is unpacked into its class path's folder and then dropped."""
        return self.type == "tar.gz"


def pinned(text: str | None = None) -> list[Jar]:
    """Read the lock."""
    found = []
    for line in (LOCK.read_text() if text is None else text).splitlines():
        if line and not line.startswith("#"):
            class_path, coordinates, size, sha256 = line.split()
            group, artifact, version, kind, classifier = (*coordinates.split(":"), "")[:5]
            found.append(Jar(class_path, group, artifact, version, kind, classifier, int(size), sha256))
    return found


def present(jar: Jar, folder: Path) -> bool:
    """Tell, quickly, whether the jar is there; its content was proved when it came."""
    if jar.is_archive:
        stamp = folder / jar.class_path / ".unpacked"
        return stamp.is_file() and stamp.read_text() == jar.sha256
    file = folder / jar.file
    return file.is_file() and file.stat().st_size == jar.size_bytes


def damaged(jars: list[Jar], folder: Path) -> list[Jar]:
    """Return the jars whose content is not what the lock says, but neither absent nor unpacked ones."""
    found = []
    for jar in jars:
        file = folder / jar.file
        if file.is_file() and (file.stat().st_size != jar.size_bytes or _sha256(file) != jar.sha256):
            found.append(jar)
    return found


def delete_damaged(jars: list[Jar], folder: Path) -> None:
    """Delete what is not what the lock says; raise Fatal naming it."""
    if bad := damaged(jars, folder):
        for jar in bad:
            (folder / jar.file).unlink()
        names = ", ".join(Path(jar.file).name for jar in bad)
        raise Fatal(f"damaged download, deleted: {names} (checksum differs from the lock)", fix="calve up")


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
        _retrieve(wanted, incoming, layout, java, lambda: task.update(_arrived_bytes(incoming / "cache")))
        task.update(total)
    delete_damaged(wanted, incoming / "jars")
    for jar in wanted:
        _place(jar, incoming / "jars", layout.jars)
    shutil.rmtree(incoming)


def spark_jars(root: Path) -> list[Path]:
    """Return the jars to be named, all of them, in `spark.jars`."""
    folder = Layout(root).jars
    return [folder / jar.file for jar in pinned() if jar.class_path == "spark"]


def _retrieve(
    wanted: list[Jar], incoming: Path, layout: Layout, java: Java, on_poll: Callable[[], None]
) -> None:
    mirror = os.environ.get("CALVE_MAVEN_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    (incoming / "settings.xml").write_text(SETTINGS.format(root=root))
    (incoming / "ivy.xml").write_text(ivy_module(wanted))
    log = layout.logs / "download.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [java.executable, *java.options, "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command += ["-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000"]
    command += [f"-Divy.default.ivy.user.dir={incoming}", "-cp", str(_ivy()), "org.apache.ivy.Main"]
    command += ["-settings", str(incoming / "settings.xml"), "-ivy", str(incoming / "ivy.xml")]
    command += ["-cache", str(incoming / "cache")]
    command += ["-retrieve", f"{incoming}/jars/[conf]/[artifact]-[revision](-[classifier]).[ext]"]
    for _ in range(ATTEMPTS):  # what has arrived stays in Ivy's cache
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as ivy:
            try:
                while ivy.poll() is None:
                    on_poll()
                    time.sleep(POLL_S)
            except BaseException:
                ivy.kill()
                raise
        if ivy.returncode == 0:
            return
    missing = [jar.file for jar in wanted if not (incoming / "jars" / jar.file).is_file()]
    raise Fatal(
        f"{len(missing)} of {len(wanted)} jars could not be downloaded: {', '.join(missing[:3])}\n{tail(log, 8)}",
        fix="check the network (a mirror: CALVE_MAVEN_REPOSITORY=<a Maven repository's URL>), then: calve up",
    )


def ivy_module(wanted: list[Jar]) -> str:
    """Write Ivy's list: one conf per class path, nothing transitive."""
    confs = "".join(f"<conf name={quoteattr(name)}/>" for name in sorted({jar.class_path for jar in wanted}))
    lines = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        f' conf="{jar.class_path}-&gt;default" transitive="false">'
        f'<artifact name={quoteattr(jar.artifact)} type="{jar.type}" ext="{jar.type}"'
        f"{f' m:classifier={quoteattr(jar.classifier)}' if jar.classifier else ''}/></dependency>\n"
        for jar in wanted
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="calve" module="embedded"/>'
        f"<configurations>{confs}</configurations><dependencies>\n{lines}</dependencies></ivy-module>\n"
    )


def _ivy() -> Path:
    import pyspark

    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    return ivy


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
        archive.extractall(unpacked, filter="data")
    (unpacked / ".unpacked").write_text(jar.sha256)
    shutil.rmtree(target.parent, ignore_errors=True)
    unpacked.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    unpacked.replace(target.parent)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
