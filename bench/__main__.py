"""`make bench`: calve beside its peers and the limits of the machine, on the same topics. Arguments: see `--help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import jars, machine
from bench.chart import svg
from bench.report import page, target_rows, throughput_rows
from bench.results import Results, figures
from bench.scene import Scene, System
from bench.sections import SECTIONS
from bench.sizes import FULL, SIZES, Sizes
from bench.systems.all import chosen
from bench.targets import verdicts
from bench.throughput import throughput
from bench.workloads.all import WORKLOADS
from cli.config import load_jobs
from cli.console import Console
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import running

PAGE, CHART, SAID = "benchmarks.md", "benchmarks.svg", "## What the figures say"


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    console, root, systems = Console(), project_root(), chosen(options.system)
    sizes = SIZES[options.size]
    results = Results(machine.facts(root, sizes.name))
    with running(root, console.progress()) as stack, tempfile.TemporaryDirectory() as folder:
        if any(each.name == "connect" for each in systems):
            jars.download(root, console.progress())
        job = replace(load_jobs(root / "calve.yaml")[0], tables=())
        scene = Scene(stack, job, Path(folder))
        _throughput(scene, console, systems, sizes, options.workload, results)
        for name, section in SECTIONS.items():
            rows = section(scene, console, systems, sizes) if options.workload in (None, name) else []
            if options.workload == name and not rows:
                rows = section(scene, console, systems, FULL)
            if rows:
                results.others[name] = rows
                console.table(name, rows)
    _keep(root, results, whole=not options.system and not options.workload and sizes.name != "quick")
    console.table("targets", target_rows(verdicts(results)))


def _throughput(
    scene: Scene,
    console: Console,
    systems: Sequence[System],
    sizes: Sizes,
    only: str | None,
    results: Results,
) -> None:
    if only and only not in sizes.records:
        sizes = FULL
    for name, count in sizes.records.items():
        if only not in (None, name):
            continue
        for each in throughput(scene, console, WORKLOADS[name], systems, count, sizes.rounds[name]):
            results.throughput.append(each)
        console.table(name, throughput_rows(figures(results.throughput), name))


def _keep(root: Path, results: Results, *, whole: bool) -> None:
    """Everything below `.calve/bench`; a whole run becomes the page of the documentation, too."""
    folder, docs = Layout(root).state / "bench", root / "docs"
    picture = svg(figures(results.throughput))
    said = (docs / PAGE).read_text().partition(SAID)[2] if (docs / PAGE).exists() else "\n"
    text = page(results, SAID + said, CHART)
    for place in (folder, docs) if whole else (folder,):
        place.mkdir(parents=True, exist_ok=True)
        (place / PAGE).write_text(text)
        (place / CHART).write_text(picture)
    (folder / "results.json").write_text(results.to_json())


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="default", help="how much is measured")
    parser.add_argument("--system", help="only the systems whose names begin like this")
    parser.add_argument(
        "--workload",
        choices=[*WORKLOADS, *SECTIONS],
        help="only this one, in full where the size has none of it",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
