"""Times in calve.yaml: each function returns the text as AWS takes it, or raises `Invalid` with reason and fix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from zoneinfo import available_timezones

from calve.names import nearest
from calve.settings.problems import Invalid, near_miss

CONTINUOUS = "continuous"
DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
UNITS = ("minute", "hour", "day")

_CALL = re.compile(r"(\w+)\s*\((.*)\)")
_SCHEDULED = re.compile(r"schedule\s*\(\s*(\"?)(.*)\1\s*\)")
_YEAR_DAYS = 365.2425
LONGEST_ABBREVIATION = 5
_RATE = re.compile(r"([1-9]\d{0,4})\s+([A-Za-z]+)")
_CRON_EXAMPLE = "write minutes, hours, day of month, month, day of week and year, such as cron(0 6 ? * MON *)"
_RUN_EXAMPLE = "use continuous, schedule(rate(6 hours)) or schedule(cron(0 */6 * * ? *))"


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a cron expression; `special`: its further forms."""

    name: str
    least: int
    greatest: int
    words: tuple[str, ...] = ()
    special: str = ""


_FIELDS = (
    _Field("minutes", 0, 59),
    _Field("hours", 0, 23),
    _Field("day of month", 1, 31, special=r"L|LW|(3[01]|[12]\d|[1-9])W"),
    _Field("month", 1, 12, MONTHS),
    _Field("day of week", 1, 7, DAYS, special=r"L|[1-7](L|#[1-5])"),
    _Field("year", 1970, 2199),
)


def expression(text: str) -> str:
    """`rate(6 hours)` or `cron(0 6 ? * MON *)`, as EventBridge Scheduler takes it."""
    call = _CALL.fullmatch(text.strip())
    if call is None:
        raise Invalid(f'"{text}" is not a schedule', "write rate(6 hours) or cron(0 6 ? * MON *)")
    name, inner = call.groups()
    match name:
        case "rate":
            return _rate(text, inner)
        case "cron":
            return _cron(text, inner)
    fix = near_miss(name, ("rate", "cron")) or "use rate(...) or cron(...)"
    raise Invalid(f'"{text}" is not a schedule: "{name}" is unknown', fix)


def run(text: str) -> str:
    """`continuous`, or the expression inside `schedule(...)`."""
    if text.strip() == CONTINUOUS:
        return CONTINUOUS
    if scheduled := _SCHEDULED.fullmatch(text.strip()):
        return expression(scheduled[2])
    if text.strip().startswith(("rate", "cron")):
        raise Invalid(f'"{text}" is not a way to run', f'write "schedule({text.strip()})"')
    raise Invalid(f'"{text}" is not a way to run', near_miss(text, (CONTINUOUS,)) or _RUN_EXAMPLE)


def time_zone(text: str) -> str:
    """A name of the tz database, such as `Europe/Vilnius`."""
    known = available_timezones()
    if text not in known:
        cities = {each.rpartition("/")[2]: each for each in known if "/" in each}
        near = nearest(text, [each for each in known if "/" in each], 0.7)
        near = near or cities.get(nearest(text.rpartition("/")[2], cities, 0.85) or "")
        if near is None or (text.isupper() and len(text) <= LONGEST_ABBREVIATION):
            raise Invalid(f'"{text}" is not a time zone', "use the name of a region, such as Europe/Berlin")
        raise Invalid(f'"{text}" is not a time zone', f'Did you mean "{near}"?')
    return text


def maintenance_window(text: str) -> str:
    """`Sun:3`: a day and an hour, in GMT."""
    day, _, hour = text.partition(":")
    if day not in DAYS or not re.fullmatch(r"\d|1\d|2[0-3]", hour):
        guess = near_miss(day[:3], DAYS) if day not in DAYS else None
        raise Invalid(
            f'"{text}" is not a maintenance window',
            guess or 'write a day and an hour in GMT, such as "Sun:3"',
        )
    return text


def firings_per_day(schedule: str) -> float:
    """How often a valid expression fires per day, on average over the years."""
    name, _, inner = schedule.rstrip(")").partition("(")
    if name == "rate":
        number, unit = inner.split()
        return {"minute": 1440.0, "hour": 24.0, "day": 1.0}[unit.removesuffix("s")] / int(number)
    counts = (_matches(part, field) or 0 for part, field in zip(inner.split(), _FIELDS, strict=True))
    minutes, hours, month_days, months, week_days, _years = counts
    days = week_days / 7 if "?" in inner.split()[2] else month_days * 12 / _YEAR_DAYS
    return minutes * hours * min(days, 1.0) * months / 12


def _rate(text: str, inner: str) -> str:
    example = "write a number and minutes, hours or days, such as rate(6 hours)"
    match = _RATE.fullmatch(inner.strip())
    if match is None:
        raise Invalid(f'"{text}" is not a schedule', example)
    number, unit = match.groups()
    if unit.removesuffix("s") not in UNITS:
        fix = near_miss(unit, [f"{each}s" for each in UNITS]) or example
        raise Invalid(f'"{text}" is not a schedule: "{unit}" is not a unit', fix)
    return f"rate({number} {unit.removesuffix('s')}{'' if number == '1' else 's'})"


def _cron(text: str, inner: str) -> str:
    parts = inner.split()
    if len(parts) != len(_FIELDS):
        reason = f'"{text}" is not a schedule: it has {len(parts)} fields, not {len(_FIELDS)}'
        raise Invalid(reason, _CRON_EXAMPLE)
    if (parts[2] == "?") == (parts[4] == "?"):
        reason = f'"{text}" is not a schedule: one of day of month and day of week must be "?", the other not'
        raise Invalid(reason, _CRON_EXAMPLE)
    for part, field in zip(parts, _FIELDS, strict=True):
        if _matches(part, field) is None:
            allowed = f"{field.least} to {field.greatest}"
            if field.words:
                allowed += f" or {field.words[0].upper()} to {field.words[-1].upper()}"
            raise Invalid(
                f'"{text}" is not a schedule: "{part}" is not valid as {field.name}', f"use * or {allowed}"
            )
    return f"cron({' '.join(parts)})"


def _matches(text: str, field: _Field) -> float | None:
    """How many of a field's values match `*`, `5`, `MON-FRI`, `*/6`, `0/15` or a list of them; None: it is not such a text.

    The field's special forms, such as `MON#1` and `L`, are one day a month.
    """
    everything = field.greatest - field.least + 1
    if text == "*" or (text == "?" and field.special):
        return everything
    found: set[int] = set()
    special = 0.0
    for part in text.split(","):
        if field.special and re.fullmatch(field.special, part):
            special += 7 * 12 / _YEAR_DAYS if field.words else 1
            continue
        span, slash, step = part.partition("/")
        numbers = [_number(each, field) for each in span.split("-")] if span != "*" else [field.least]
        if (slash and not re.fullmatch(r"[1-9]\d{0,3}", step)) or len(numbers) > 2 or None in numbers:
            return None
        first, last = numbers[0] or 0, numbers[-1] or 0
        if len(numbers) == 1 and (slash or span == "*"):
            last = field.greatest
        found |= set(range(first, last + 1, int(step or 1)))
    return len(found) + special


def _number(text: str, field: _Field) -> int | None:
    words = [word.upper() for word in field.words]
    if text.upper() in words:
        return field.least + words.index(text.upper())
    if text.isascii() and text.isdigit() and field.least <= int(text) <= field.greatest:
        return int(text)
    return None
