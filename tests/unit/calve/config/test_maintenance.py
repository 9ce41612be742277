from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.maintenance import (
    MOST_EXPIRED,
    Figures,
    Maintenance,
    RowRetention,
    due,
    snapshots_to_keep,
    surplus,
)

DAY = 86_400.0
MB = 1_000_000


def test_a_fresh_table_needs_nothing() -> None:
    assert due(Figures(), Maintenance()) == ()
    healthy = Figures(
        data_files=9_000,
        surplus_files=400,
        manifests=40,
        manifest_bytes=90 * MB,
        delete_files=30,
        rows=10**9,
        deleted_rows=10**8,
        snapshots=100,
    )
    assert due(healthy, Maintenance()) == ()


@pytest.mark.parametrize(
    ("figures", "kind"),
    [
        ({"snapshots": 101}, "snapshots"),
        ({"snapshots": 11, "oldest_snapshot_s": 9 * DAY}, "snapshots"),
        ({"manifests": 41}, "manifests"),
        ({"data_files": 33, "surplus_files": 32}, "compact"),
        ({"data_files": 100, "delete_files": 32}, "deletes"),
        ({"data_files": 100, "delete_files": 1, "rows": 10, "deleted_rows": 4}, "deletes"),
        ({"orphans_s": 8 * DAY}, "orphans"),
        ({"oldest_row_s": 91 * DAY}, "rows"),
        ({"oldest_dead_letter_s": 31 * DAY}, "dead_letters"),
    ],
)
def test_what_is_felt_is_due(figures: dict[str, Any], kind: str) -> None:
    maintenance = Maintenance(dead_letters_s=30 * DAY, rows=RowRetention("at", 90 * DAY))
    assert [each.kind for each in due(Figures(**figures), maintenance)] == [kind]


def test_what_a_few_more_of_do_not_matter_is_not_due() -> None:
    assert due(Figures(data_files=10_000, surplus_files=499, delete_files=999), Maintenance()) == ()
    assert due(Figures(snapshots=10, oldest_snapshot_s=900 * DAY), Maintenance()) == ()
    assert due(Figures(oldest_row_s=9_000 * DAY, oldest_dead_letter_s=9_000 * DAY), Maintenance()) == ()


def test_small_files_count_by_partition() -> None:
    assert surplus({"a": [MB] * 40, "b": [MB], "c": [120 * MB] * 9}, 128 * MB) == 39
    assert surplus({"a": [64 * MB] * 40}, 128 * MB) == 20
    assert surplus({n: [MB] for n in range(1_000)}, 128 * MB) == 0
    assert surplus({}, 128 * MB) == 0


def test_at_least_wins_over_at_most_and_age() -> None:
    assert (
        snapshots_to_keep([99 * DAY] * 30, 0, Maintenance(snapshots_at_least=20, snapshots_at_most=5)) == 20
    )
    assert snapshots_to_keep([99 * DAY] * 5, 0, Maintenance(snapshots_at_least=20)) == 5


@given(
    ages=st.lists(st.floats(0, 30 * DAY), max_size=1_200).map(sorted),
    needed=st.integers(0, 40),
    least=st.integers(1, 50),
    most=st.integers(2, 200),
)
def test_snapshots_that_stay(ages: list[float], needed: int, least: int, most: int) -> None:
    maintenance = Maintenance(snapshots_at_least=least, snapshots_at_most=most)
    kept = snapshots_to_keep(ages, needed, maintenance)
    assert min(len(ages), max(least, needed)) <= kept <= len(ages)
    assert len(ages) - kept <= MOST_EXPIRED
    if len(ages) <= MOST_EXPIRED:
        assert kept <= max(most, least, needed)
        assert all(age <= maintenance.snapshots_s for age in ages[max(least, needed) : kept])
    if len(ages) <= most:
        assert kept >= sum(age <= maintenance.snapshots_s for age in ages)
    while (more := snapshots_to_keep(ages[:kept], needed, maintenance)) != kept:
        assert more < kept
        kept = more
