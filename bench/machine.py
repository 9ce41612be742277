"""Where and with what was measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.jars import LOCK
from cli.embedded.layout import Layout
from cli.embedded.runtimes import find_java
from stacks.jobs.jars import Jar, pinned

PACKAGES = ("pyspark", "pyarrow", "numba", "kafka-python")


def facts(root: Path, sizes: str) -> dict[str, Any]:
    """Machine, versions, commit and the moment."""
    own, connect = pinned(), pinned(LOCK.read_text())
    return {
        "sizes": sizes,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(root),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "processor": _processor(),
            "system": platform.system(),
        },
        "versions": {
            "Python": platform.python_version(),
            "Java": find_java(Layout(root)).version,
            **{name: version(name) for name in PACKAGES},
            "Kafka broker": _version(own, "kafka_2.13"),
            "Iceberg": _version(own, "iceberg-spark-runtime-4.1_2.13"),
            "Iceberg Kafka Connect": _version(connect, "iceberg-kafka-connect"),
            "Kafka Connect": _version(connect, "connect-runtime"),
            "its Avro converter": f"Apicurio {_version(connect, 'apicurio-registry-utils-converter')}",
        },
    }


def _version(jars: list[Jar], artifact: str) -> str:
    return next(each.version for each in jars if each.artifact == artifact)


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _commit(root: Path) -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    return f"{commit} and changes" if commit and git("status", "--porcelain", "-uno") else commit or "unknown"
