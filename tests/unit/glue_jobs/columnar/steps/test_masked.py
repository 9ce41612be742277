"""Values masked by kernels, against what plain Python makes of each of them."""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from calve.config.masking_keys import Key
from calve.config.steps import Rule
from glue_jobs.engines.columnar_steps.mask import Tokens, masked, text

KEYS = (Key("old", 0, b"o" * 32), Key("new-one", 1_000, b"n" * 100))
DOMAIN = re.compile(r"(@[A-Za-z0-9.-]+\.[A-Za-z][A-Za-z0-9-]*)\Z")
ADDRESSES = st.text("@.-aZ0 ä", max_size=12) | st.emails()


def tokens(*moments_us: int | None) -> Tokens:
    times = pa.array(moments_us, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return Tokens.of(KEYS, pa.StructArray.from_arrays([times], ["timestamp"]))


def shown(values: list[Any], kind: pa.DataType, rule: Rule) -> list[Any]:
    """The values masked, as an array that begins within a longer one."""
    array = pa.array([None, *values], kind).slice(1)
    found: list[Any] = masked(rule, array, tokens()).to_pylist()
    return found


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=300), st.none() | st.sampled_from([-1, 0, 999, 1_000, 5_000])
        ),
        max_size=20,
    )
)
def test_a_token_is_the_hmac_by_the_key_of_the_records_time(
    cases: list[tuple[bytes | None, int | None]],
) -> None:
    found = tokens(*(at for _, at in cases)).made_of(pa.array([data for data, _ in cases], pa.binary()))
    wanted = []
    for data, at in cases:
        key = KEYS[1] if at is not None and at >= 1_000 else KEYS[0]
        wanted.append(
            None if data is None else f"{key.id}:{hmac.new(key.secret, data, hashlib.sha256).hexdigest()}"
        )
    assert found.to_pylist() == wanted


def test_values_of_any_size_are_hashed_side_by_side() -> None:
    data = [b"x" * size for size in (*range(200, -1, -1), 1_000, 5)]
    wanted = ["old:" + hmac.new(KEYS[0].secret, each, hashlib.sha256).hexdigest() for each in data]
    assert tokens(*[0] * len(data)).made_of(pa.array(data, pa.binary())).to_pylist() == wanted


def test_no_key_is_shown() -> None:
    assert "o" * 8 not in repr(tokens(0))


@given(st.lists(st.none() | st.text(), max_size=20), st.integers(1, 6))
def test_the_last_characters_stay(values: list[str | None], stays: int) -> None:
    wanted = [
        each and ("*" * (len(each) - stays) + each[-stays:] if len(each) > stays else "*" * len(each))
        for each in values
    ]
    assert shown(values, pa.string(), Rule("partial", stays)) == wanted


@given(st.lists(st.none() | ADDRESSES, max_size=20))
@example(["@.a", "a@b.c", "a@b.", "@a.1", "x@@a.b", "@a.b-", "@a.b.c", "a@.b.c", "@", "", "a@b,c.de"])
def test_the_domain_of_an_address_stays(values: list[str | None]) -> None:
    def domain(value: str) -> str:
        found = DOMAIN.search(value)
        return "***" + (found[1] if found else "")

    assert shown(values, pa.string(), Rule("partial", "domain")) == [
        None if each is None else domain(each) for each in values
    ]


@given(st.data(), st.integers(1, 38))
def test_a_decimal_has_its_digits_and_no_more(data: st.DataObject, digits: int) -> None:
    scale = data.draw(st.integers(0, digits))
    units = data.draw(
        st.lists(st.none() | st.integers(1 - 10**digits, 10**digits - 1) | st.just(0), max_size=10)
    )
    values = [None if each is None else Decimal(f"{each}E-{scale}") for each in units]
    found = text(pa.array([None, *values], pa.decimal128(digits, scale)).slice(1)).to_pylist()
    for value, shown_ in zip(values, found, strict=True):
        plain = None if value is None else f"{value:f}"
        if plain and "." in plain:
            plain = plain.rstrip("0").rstrip(".")
        assert shown_ == ("0" if plain == "-0" else plain)


@given(st.lists(st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), max_size=10))  # noqa: DTZ001
def test_a_moment_is_written_in_iso_8601(moments: list[datetime | None]) -> None:
    wanted = [each and each.isoformat(timespec="microseconds") for each in moments]
    assert text(pa.array(moments, pa.timestamp("us"))).to_pylist() == wanted
    days = [each and each.date() for each in moments]
    assert text(pa.array(days, pa.date32())).to_pylist() == [each and each.isoformat() for each in days]
    zoned = pa.array([each and each.replace(tzinfo=UTC) for each in moments], pa.timestamp("us", "UTC"))
    assert text(zoned).to_pylist() == [each and f"{each}Z" for each in wanted]


def test_a_year_beyond_four_digits_has_a_sign() -> None:
    days = pa.array([-(2**31), -719_529, 2_932_897, None, 0], pa.int32()).cast(pa.date32())
    assert text(days).to_pylist() == ["-5877641-06-23", "-0001-12-31", "+10000-01-01", None, "1970-01-01"]
    moments = pa.array([-(2**63), 2**63 - 1, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert text(moments).to_pylist() == [
        "-290308-12-21T19:59:05.224192Z",
        "+294247-01-10T04:00:54.775807Z",
        "1970-01-01T00:00:00.000000Z",
    ]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(2, 2**63 - 1))
def test_a_band_is_a_multiple_that_the_type_has(values: list[int | None], width: int) -> None:
    wanted = [None if each is None else each - each % width for each in values]
    assert shown(values, pa.int64(), Rule("generalise", width)) == [
        each if each is not None and each >= -(2**63) else None for each in wanted
    ]


@given(st.lists(st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), max_size=10))  # noqa: DTZ001
def test_a_span_begins_with_its_first_day(moments: list[datetime | None]) -> None:
    months = shown(moments, pa.timestamp("us"), Rule("generalise", "month"))
    years = shown([each and each.date() for each in moments], pa.date32(), Rule("generalise", "year"))
    nothing = timedelta(0)
    for given_, month, year in zip(moments, months, years, strict=True):
        if given_ is None:
            assert (month, year) == (None, None)
        else:
            assert given_ - month >= nothing
            assert (month.year, month.month) == (given_.year, given_.month)
            assert (month.day, month.time(), year) == (
                1,
                month.min.time(),
                given_.date().replace(month=1, day=1),
            )
