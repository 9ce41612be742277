"""Pinned jars, downloaded by the Ivy inside PySpark and proved by their checksums."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from calve.errors import Fatal

LOCK = Path(__file__).with_name("jars.lock")
ATTEMPTS = 3
POLL_S = 0.2
SHOWN_LINES = 8
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


def damaged(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    """Return the jars whose content is not what the lock says, but neither absent nor unpacked ones."""
    found = []
    for jar in jars:
        file = folder / jar.file
        if file.is_file() and (file.stat().st_size != jar.size_bytes or _sha256(file) != jar.sha256):
            found.append(jar)
    return found


def delete_damaged(jars: Sequence[Jar], folder: Path) -> None:
    """Delete what is not what the lock says; raise Fatal naming it."""
    if bad := damaged(jars, folder):
        for jar in bad:
            (folder / jar.file).unlink()
        names = ", ".join(Path(jar.file).name for jar in bad)
        raise Fatal(
            f"damaged download, deleted: {names} (checksum differs from the lock)", fix="do the same again"
        )


def retrieve(
    wanted: Sequence[Jar],
    folder: Path,
    *,
    java: Sequence[str],
    log: Path,
    on_poll: Callable[[], None] = lambda: None,
) -> None:
    """Download jars into `folder`, each below its class path; Ivy's own files lie there, too.

    Args:
        wanted: the jars.
        folder: an empty folder.
        java: the beginning of Java's command line.
        log: what Ivy says.
        on_poll: called several times a second.

    Raises:
        Fatal: a jar did not arrive, or is not the one that is pinned.
    """
    mirror = os.environ.get("CALVE_MAVEN_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    (folder / "settings.xml").write_text(SETTINGS.format(root=root))
    (folder / "ivy.xml").write_text(ivy_module(wanted))
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*java, "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command += ["-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000"]
    command += [f"-Divy.default.ivy.user.dir={folder}", "-cp", str(_ivy()), "org.apache.ivy.Main"]
    command += ["-settings", str(folder / "settings.xml"), "-ivy", str(folder / "ivy.xml")]
    command += ["-cache", str(folder / "cache")]
    command += ["-retrieve", f"{folder}/[conf]/[artifact]-[revision](-[classifier]).[ext]"]
    for _ in range(ATTEMPTS):  # what has arrived stays in Ivy's cache
        if _ran(command, log, on_poll):
            delete_damaged(wanted, folder)
            return
    missing = [jar.file for jar in wanted if not (folder / jar.file).is_file()]
    said = [f"  {line[:300]}" for line in log.read_text(errors="replace").splitlines() if line.strip()]
    raise Fatal(
        f"{len(missing)} of {len(wanted)} jars could not be downloaded: {', '.join(missing[:3])}\n"
        + "\n".join(said[-SHOWN_LINES:]),
        fix="check the network (a mirror: CALVE_MAVEN_REPOSITORY=<a Maven repository's URL>), then do the same again",
    )


def ivy_module(wanted: Sequence[Jar]) -> str:
    """Write Ivy's list: one conf per class path, nothing transitive, a module once with all its files: of two Ivy takes one."""
    confs = "".join(f"<conf name={quoteattr(name)}/>" for name in sorted({jar.class_path for jar in wanted}))
    modules: dict[tuple[str, ...], list[Jar]] = {}
    for jar in wanted:
        modules.setdefault((jar.class_path, jar.group, jar.artifact, jar.version), []).append(jar)
    lines = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        f' conf="{class_path}-&gt;default" transitive="false">{"".join(map(_artifact, jars))}</dependency>\n'
        for (class_path, group, artifact, version), jars in modules.items()
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="calve" module="embedded"/>'
        f"<configurations>{confs}</configurations><dependencies>\n{lines}</dependencies></ivy-module>\n"
    )


def _artifact(jar: Jar) -> str:
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return f'<artifact name={quoteattr(jar.artifact)} type="{jar.type}" ext="{jar.type}"{classifier}/>'


def _ran(command: list[str], log: Path, on_poll: Callable[[], None]) -> bool:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as ivy:
        try:
            while ivy.poll() is None:
                on_poll()
                time.sleep(POLL_S)
        except BaseException:
            ivy.kill()
            raise
    return ivy.returncode == 0


def _ivy() -> Path:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise Fatal("PySpark, whose Ivy downloads jars, is not there", fix="pip install -r requirements.txt")
    (ivy,) = (Path(pyspark.origin).parent / "jars").glob("ivy-*.jar")
    return ivy


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
