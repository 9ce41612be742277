"""An Iceberg REST catalog beside the embedded stack: the test server of the Iceberg project. Prints an overlay that names it."""

from __future__ import annotations

from cli.embedded.elsewhere import up
from cli.embedded.layout import project_root
from cli.embedded.stack import Stack, current


def overlay(stack: Stack) -> str:
    return f"lake: {{catalog: {{type: rest, uri: {up(stack).catalog}}}}}"


if __name__ == "__main__":
    stack = current(project_root())
    if stack is None:
        raise SystemExit("the embedded stack is not up: calve up")
    print(overlay(stack))  # noqa: T201 a script
