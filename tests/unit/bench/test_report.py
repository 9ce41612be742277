"""Figures, verdicts, the page and the picture are made of what was measured, and of nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import astuple

import pytest

from bench.chart import svg
from bench.metering import Spent
from bench.report import page, target_rows, throughput_rows
from bench.results import Failure, Measured, Results, figures
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
    warm: float,
    *,
    idle: tuple[float, ...] = (0.0,),
    number: int = 1,
    broker_s: float = 0.1,
    size: int = 9,
) -> Measured:
    return Measured(
        workload="trades",
        system=system,
        round=number,
        count=1_000_000,
        value_bytes=55_000_000,
        start=spent(2.0),
        cold=spent(cold),
        idle=tuple(spent(each, broker_s=0.0) for each in idle),
        warm=spent(warm, broker_s=broker_s),
        peak_bytes=500,
        files=4,
        table_bytes=size * 1_000_000,
    )


def test_a_figure_is_the_median_of_rounds_with_its_spread() -> None:
    rounds = [
        measured("calve_columnar", 2.0, warm, idle=(0.2, 0.4), number=n)
        for n, warm in enumerate((1.3, 0.8, 1.1), start=1)
    ]
    [found] = figures(rounds)
    assert found.rounds == 3
    assert astuple(found.steady) == pytest.approx((1_250_000, 1_000_000, 2_000_000))
    assert found.warm.least == pytest.approx(1_000_000 / 1.3)
    assert found.all_in.median == 250_000
    assert found.bytes_per_row == 9
    assert found.value_bytes == 55


def test_a_pass_that_took_no_longer_than_an_empty_one_has_no_rate() -> None:
    found = figures([measured("limit_fetch", 0.5, 0.1, idle=(0.1,))])
    assert found[0].too_short == "limit: fetch took 0.01 CPU s: too few records"
    [row] = throughput_rows(found, "trades")
    assert (row["steady k/s"], row["MB/s"], row["warm k/s"]) == ("-", "-", "10,000")
    assert "limit" not in svg(found)


def test_a_rate_of_too_few_records_or_above_its_own_limit_meets_no_target() -> None:
    stream = measured("spark_streaming", 8.0, 3.2)
    limit = measured("limit_parquet", 2.0, 0.6)
    short, beyond = measured("calve_columnar", 2.0, 0.2), measured("calve_columnar", 2.0, 0.5)
    for ours, why in ((short, "too few records"), (beyond, "above its own limit of 1,667")):
        others = [stream] if ours is short else [stream, limit]
        found = [each for each in verdicts(Results(FACTS, [ours, *others])) if "steady" in each.what]
        assert [each.met for each in found] == [False, False]
        assert all(each.state.startswith("not measurable") and why in each.state for each in found)
        assert why in str(target_rows(found))


def test_targets_are_judged_where_all_that_they_compare_was_measured() -> None:
    ours = measured("calve_columnar", 2.0, 0.8, broker_s=0.01)
    stream = measured("spark_streaming", 8.0, 3.2, broker_s=0.1, size=13)
    alone = {each.what for each in verdicts(Results(FACTS, [ours]))}
    assert alone == {"thousand records per CPU second, steady"}
    both = {each.what: each for each in verdicts(Results(FACTS, [ours, stream]))}
    assert both["thousand records per CPU second, steady"].met
    assert both["times Spark streaming, steady"].measured == pytest.approx(4)
    assert not both["times Spark streaming, steady"].met
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
    results = Results(FACTS, [], {"freshness": freshness, "commits": commits, "kills": kills})
    met = {each.what: each.met for each in verdicts(results)}
    assert met == {
        "ms to visible, p99, with rounds of 1.0 s": True,
        "ms to visible, p99, with rounds of 0.2 s": False,
        "of Spark streaming's CPU, both each second": True,
        "of what commit 20 took: commit 200": False,
        "kB of metadata file": True,
        "ms to plan a scan": True,
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
    assert "| calve, columnar engine | 1,250 |" in text
    assert "0123456789ab" in text
    assert "## freshness\n\n| system | p50 ms |" in text
    assert "| trades | spark_batch | 1 | its columns price hold other values |" in text
    assert text.endswith("## What the figures say\n\nMuch.\n")
    slowest, *_ = throughput_rows(figures(found), "trades")
    assert slowest["system"] == "Iceberg Kafka Connect"
    drawn = ET.fromstring(svg(figures(found)))
    words = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"calve, columnar engine", "Iceberg Kafka Connect", "1,250"} <= set(words)


def test_results_come_back_from_their_file() -> None:
    results = Results(FACTS, [measured("connect", 9.0, 5.0)], {"commits": [{"commit": 10}]}, [FAILED])
    assert Results.from_json(results.to_json()) == results


def test_a_system_is_run_by_name_and_a_group_by_the_beginning_of_its_names() -> None:
    assert [each.name for each in chosen("connect")] == ["connect"]
    assert [each.name for each in chosen("calve")] == ["calve_rows", "calve_columnar"]
    assert chosen(None) == list(SYSTEMS)
    assert [each.name for each in chosen(None, QUICK.systems)] == list(QUICK.systems)
    assert [each.name for each in chosen("connect", QUICK.systems)] == ["connect"]
    with pytest.raises(ValueError, match="no system is named flink; there are calve_rows"):
        chosen("flink")
