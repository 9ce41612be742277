"""Moments as an operator writes them on a command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from calve.errors import ConfigError


def moment(text: str, now: datetime, option: str) -> datetime:
    """`1h` before now, or a moment with its time zone.

    Raises:
        ConfigError: the text, given as `option`, is neither.
    """
    from calve.settings import notation
    from calve.settings.problems import Invalid

    try:
        return now - timedelta(seconds=notation.seconds(text))
    except (Invalid, OverflowError):
        pass
    fix = 'write a duration, such as "2h" or "7d", or a moment, such as "2026-01-01T00:00:00Z"'
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f'{option}: "{text}" is neither a duration nor a moment', fix=fix) from None
    if found.tzinfo is None:
        raise ConfigError(f'{option}: "{text}" has no time zone', fix=fix)
    return found.astimezone(UTC)
