"""`calve keys`: how old the keys of a deployment are, and when they change; never what they are."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption
from cli.console import Console, Output, OutputOption, duration

if TYPE_CHECKING:
    from cli.act.key_ages import KeyAge


def keys(
    config: ConfigOption = DEFAULT_CONFIG, env: EnvOption = None, output: OutputOption = Output.text
) -> None:
    """Show how old the secrets of the deployment are, never a value.

    With what each is for, its last and its next change.

    Example:
      calve keys --env prod
    """
    from cli.act.key_ages import key_ages

    now = datetime.now(UTC)
    console = Console(output)
    found = key_ages(config, env, now)
    console.table("keys", [_line(each, now) for each in found])
    if not found:
        console.say("no secrets: the configuration names none, and no stack of it has made one")
    console.document({"keys": [asdict(each) for each in found]})


def _line(key: KeyAge, now: datetime) -> dict[str, object]:
    return {
        "for": key.use,
        "secret": key.secret,
        "state": key.state,
        "age": _since(key.created, now),
        "tested": "-" if key.rotated is None else f"{_since(key.rotated, now)} ago",
        "next": _until(key.next, now),
    }


def _since(then: datetime | None, now: datetime) -> str:
    return "-" if then is None else duration(max(0.0, (now - then).total_seconds()))


def _until(then: datetime | None, now: datetime) -> str:
    if then is None:
        return "-"
    left = (then - now).total_seconds()
    return f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago"
