"""Figures, verdicts, the page and the picture are made of what was measured, and of nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import astuple
from typing import Any

import pytest

from bench.chart import svg
from bench.metering import Spent
from bench.report import page, target_rows, throughput_rows
from bench.results import Failure, Measured, Results, Spread, figures
from bench.sizes import QUICK
from bench.systems.all import SYSTEMS, chosen
from bench.targets import verdicts

FACTS = {
    "sizes": "default",
    "at": "2026-11-23T08:00:00+00:00",
    "commit": "0123456789ab",
    "machine": {"cores": 2, "memory_gib": 24, "processor": "some", "system": "Linux"},
    "versions": {"Python": "3.11.9"},
}

FAILED = Failure("trades", "spark_batch", 1, "its columns price hold other values")


def spent(cpu_s: float, *, broker_s: float = 0.1) -> Spent:
    return Spent(wall_s=cpu_s / 2, cpu_s=cpu_s, broker_s=broker_s, other_s=0.0)


def measured(
    system: str,
    cold: float,
    *warm: float,
    empty: float = 0.0,
    number: int = 1,
    broker_s: float = 0.1,
    size: int = 9,
) -> Measured:
    return Measured(
        workload="trades",
        system=system,
        round=number,
        cold_count=500_000,
        count=1_000_000,
        value_bytes=55_000_000,
        start=spent(2.0),
        cold=spent(cold),
        empty=(spent(empty),),
        warm=tuple(spent(each, broker_s=broker_s) for each in warm),
        peak_bytes=500,
        files=4,
        table_bytes=size * 1_000_000,
    )


def test_a_figure_is_the_median_of_all_warm_passes_with_its_spread() -> None:
    rounds = [
        measured("calve_columnar", 2.0, 1.25, 0.8, number=1),
        measured("calve_columnar", 2.0, 1.0, number=2),
    ]
    [found] = figures(rounds)
    assert astuple(found.warm) == pytest.approx((1_000_000, 800_000, 1_250_000))
    assert found.all_in.median == 125_000
    assert found.bytes_per_row == 9
    assert found.value_bytes == 55


def test_a_ratio_has_the_range_of_its_worst_and_its_best_pair() -> None:
    assert Spread(10, 8, 12) / Spread(2, 1, 4) == Spread(5, 2, 12)


def test_a_pass_of_which_a_tenth_does_not_depend_on_records_has_no_rate() -> None:
    found = figures([measured("limit_fetch", 0.5, 1.0, empty=0.2)])
    assert found[0].too_short == "20% of a pass does not depend on records"
    [row] = throughput_rows(found, "trades")
    assert (row["warm k/s"], row["MB/s"], row["empty pass CPU ms"]) == ("not resolved", "-", "200")
    assert "limit" not in svg(found)


@pytest.mark.parametrize(
    ("ours", "why"),
    [
        (measured("calve_columnar", 2.0, 0.2, empty=0.1), "50% of a pass does not depend on records"),
        (measured("calve_columnar", 2.0, 0.5), "above its own limit of 1,667"),
        (measured("calve_columnar", 2.0, 0.7, 0.8, 1.6), "measured 625 to 1,429"),
    ],
)
def test_a_rate_that_proves_nothing_meets_no_target(ours: Measured, why: str) -> None:
    results = Results(FACTS, [ours, measured("limit_parquet", 2.0, 0.6)])
    [found] = verdicts(results)
    assert not found.met
    assert found.state == f"not resolved: {why}"
    assert why in str(target_rows([found]))


def test_targets_are_judged_where_all_that_they_compare_was_measured() -> None:
    ours = measured("calve_columnar", 2.0, 0.8, broker_s=0.01)
    stream = measured("spark_streaming", 8.0, 3.2, broker_s=0.1, size=13)
    alone = {each.what for each in verdicts(Results(FACTS, [ours]))}
    assert alone == {"thousand records per CPU second"}
    both = {each.what: each for each in verdicts(Results(FACTS, [ours, stream]))}
    assert both["thousand records per CPU second"].met
    assert both["times Spark streaming"].measured.median == pytest.approx(4)
    assert not both["times Spark streaming"].met
    assert not both["of the broker's CPU under Spark streaming"].met
    assert both["of the bytes of Spark's files"].met


def test_bounds_are_judged_by_the_rows_of_their_tables() -> None:
    freshness = [
        {"system": "calve, columnar engine", "rounds s": 1.0, "p99 ms": 1_100, "cores": 0.4},
        {"system": "calve, columnar engine", "rounds s": 0.2, "p99 ms": 600, "cores": 0.9},
        {"system": "bare Spark, streaming", "rounds s": 1.0, "p99 ms": 2_300, "cores": 0.8},
    ]
    commits = [
        {"commit": 20, "commit ms": 100, "metadata kB": 9, "plan ms": 9},
        {"commit": 200, "commit ms": 130, "metadata kB": 30, "plan ms": 9},
    ]
    kills = [{"system": "calve, columnar engine", "lost": 0, "doubled": 1, "recovery s": 4.0}]
    topics = [{"topics": 20, "CPU ms/table": 500}]
    others: dict[str, list[dict[str, Any]]] = {
        "freshness": freshness,
        "commits": commits,
        "kills": kills,
        "topics": topics,
    }
    results = Results(FACTS, [], others)
    met = {each.what: each.met for each in verdicts(results)}
    assert met == {
        "ms to visible, p99, with rounds of 1.0 s": True,
        "ms to visible, p99, with rounds of 0.2 s": False,
        "of Spark streaming's CPU, both each second": True,
        "of what commit 20 took: commit 200": False,
        "kB of metadata file": True,
        "ms to plan a scan": True,
        "CPU ms for each of 20 tables": False,
        "records lost or doubled by kills (calve, columnar engine)": False,
        "s to recover (calve, columnar engine)": True,
    }


def test_the_page_and_the_picture_show_every_system() -> None:
    found = [
        measured("calve_columnar", 2.0, 0.8),
        measured("connect", 9.0, 5.0),
        measured("limit_parse", 0.6, 0.3),
    ]
    results = Results(FACTS, found, {"freshness": [{"system": "calve", "p50 ms": 600}]}, [FAILED])
    text = page(results, "## What the figures say\n\nMuch.\n", "benchmarks.svg")
    assert "| calve, columnar engine | 1,000,000 | 1,250 |" in text
    assert "0123456789ab" in text
    assert "## freshness\n\n| system | p50 ms |" in text
    assert "| trades | spark_batch | 1 | its columns price hold other values |" in text
    assert text.endswith("## What the figures say\n\nMuch.\n")
    slowest, *_ = throughput_rows(figures(found), "trades")
    assert slowest["system"] == "Iceberg Kafka Connect"
    drawn = ET.fromstring(svg(figures(found)))
    words = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"calve, columnar engine", "Iceberg Kafka Connect", "1,250"} <= set(words)


def test_a_system_is_run_by_name_and_a_group_by_the_beginning_of_its_names() -> None:
    assert [each.name for each in chosen("connect")] == ["connect"]
    assert [each.name for each in chosen("calve")] == ["calve_rows", "calve_columnar"]
    assert chosen(None) == list(SYSTEMS)
    assert [each.name for each in chosen(None, QUICK.systems)] == list(QUICK.systems)
    assert [each.name for each in chosen("connect", QUICK.systems)] == ["connect"]
    with pytest.raises(ValueError, match="no system is named flink; there are calve_rows"):
        chosen("flink")
