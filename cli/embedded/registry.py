"""The schema registry: Apicurio, spoken to through its Confluent API."""

from __future__ import annotations

from pathlib import Path

from calve.errors import Fatal
from cli.embedded.java import Java
from cli.embedded.loopback import HOST, call

JVM = ["-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def command(java: Java, *, jars: Path) -> list[str]:
    """Return the registry's command line."""
    (runner,) = jars.glob("apicurio-registry-app-*-runner.jar")
    return [java.executable, *JVM, "-jar", str(runner)]


def environment(port: int, *, data: Path) -> dict[str, str]:
    """Return the registry's settings; its schemas are in a file, so that a restart keeps them."""
    return {
        "QUARKUS_HTTP_HOST": HOST,
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
        "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{data}/registry",
    }


def url(port: int) -> str:
    """Return the address for Confluent's clients."""
    return f"http://{HOST}:{port}/apis/ccompat/v7"


def answers(port: int) -> bool:
    """Tell whether the registry serves requests."""
    return call(f"{url(port)}/subjects") == 200


def require_compatibility(port: int) -> None:
    """Refuse incompatible schemas, as Confluent's registry does from the start and Apicurio does not."""
    if (status := call(f"{url(port)}/config", method="PUT", body=b'{"compatibility":"BACKWARD"}')) != 200:
        raise Fatal(f"the schema registry refused its compatibility level (HTTP {status})")
