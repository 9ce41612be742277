"""What was measured as tables: on the terminal, and as the page docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.results import Failure, Figures, Results, Spread, figures
from bench.systems.all import TITLES
from bench.targets import Verdict, verdicts

Row = dict[str, object]

HEAD = """# Benchmarks

*Explanation*

`make bench` writes this page, except its last part ([method](adr/0037-how-calve-is-measured.md)).
All systems read the same topics in turn. DuckDB checks every row.

- *All in*: the first pass, with the start of the process.
- *Warm*: a later pass with all its work: open a new table, plan, read, write, commit. At least three, with their range.
- *Empty pass*: a topic with one record in each partition.
- Rates: records per CPU second of the system, without broker, registry and store.
- *Not resolved*: a tenth of a pass does not depend on records, or the range is wider than the distance to the target.
"""


def throughput_rows(found: Sequence[Figures], workload: str) -> list[Row]:
    """A row for each system, the fastest last."""
    mine = [each for each in found if each.workload == workload]
    return [
        {
            "system": TITLES[each.system],
            "records": f"{each.count:,}",
            "warm k/s": "not resolved" if each.too_short else _thousands(each.warm),
            "MB/s": "-" if each.too_short else f"{each.warm.median * each.value_bytes / 1e6:,.1f}",
            "all in k/s": _thousands(each.all_in),
            "start CPU s": f"{each.start_cpu_s:.1f}",
            "empty pass CPU ms": f"{each.empty_cpu_s * 1000:,.0f}",
            "wall s": f"{each.wall_s:.1f}",
            "broker CPU s/M": f"{each.broker_s_per_million:.2f}",
            "B/row": f"{each.bytes_per_row:.1f}" if each.files else "-",
            "files": f"{each.files:.0f}" if each.files else "-",
            "peak MB": f"{each.peak_bytes / 1e6:,.0f}",
            "others": f"{each.disturbance:.0%}",
        }
        for each in sorted(mine, key=lambda each: each.warm.median)
    ]


def workloads(found: Sequence[Figures]) -> list[str]:
    return list(dict.fromkeys(each.workload for each in found))


def target_rows(found: Sequence[Verdict]) -> list[Row]:
    return [
        {
            "workload": each.workload,
            "target": f"at {'most' if each.at_most else 'least'} {each.goal:,.4g} {each.what}",
            "measured": f"{each.measured.median:,.4g}",
            "state": each.state,
        }
        for each in found
    ]


def page(results: Results, said: str, chart: str) -> str:
    """The page; `said`: what people have written about the figures, `chart`: the name of the picture."""
    found = figures(results.throughput)
    parts = [HEAD, f"![Records per CPU second]({chart})\n", "## Where and when\n", _facts(results.facts)]
    parts += ["## Targets\n", *_table(target_rows(verdicts(results)))]
    for workload in workloads(found):
        parts += [f"## {workload}\n", _size(results, workload), *_table(throughput_rows(found, workload))]
    for name, rows in results.others.items():
        parts += [f"## {name}\n", *_table(rows)]
    if results.failures:
        parts += ["## Not measured\n", *_table([_failure(each) for each in results.failures])]
    return "\n".join([*parts, said.rstrip(), ""])


def _failure(failure: Failure) -> Row:
    """The first line of the reason: the rest of it is in the log."""
    return asdict(failure) | {"why": failure.why.splitlines()[0] if failure.why else ""}


def _size(results: Results, workload: str) -> str:
    first = next(each for each in results.throughput if each.workload == workload)
    size = first.value_bytes / first.count
    return f"Values of {size:.0f} bytes. The cold pass has {first.cold_count:,} records.\n"


def _facts(facts: Mapping[str, Any]) -> str:
    machine, versions = facts["machine"], facts["versions"]
    return "\n".join(
        [
            f"- {facts['at']}, commit {facts['commit']}, sizes: {facts['sizes']}",
            f"- {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']}",
            f"- {', '.join(f'{name} {version}' for name, version in versions.items())}",
            "",
        ]
    )


def _table(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    if not rows:
        yield "Nothing was measured.\n"
        return
    yield _line(rows[0])
    yield _line(["---"] * len(rows[0]))
    yield from (_line(map(str, row.values())) for row in rows)
    yield ""


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _thousands(spread: Spread) -> str:
    median = f"{spread.median / 1000:,.0f}"
    if spread.least == spread.most:
        return median
    return f"{median} ({spread.least / 1000:,.0f} to {spread.most / 1000:,.0f})"
