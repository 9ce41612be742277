"""`make bench`: calve beside its peers and the limits of the machine, on the same topics. Arguments: see `--help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import jars, machine
from bench.chart import svg
from bench.report import page, target_rows, throughput_rows
from bench.results import Failure, Results, figures
from bench.scene import Scene, System
from bench.sections import SECTIONS
from bench.sizes import FULL, LEFT_OUT, QUICK, SIZES, Sizes
from bench.systems.all import chosen
from bench.targets import verdicts
from bench.throughput import throughput
from bench.workloads.all import WORKLOADS
from cli.config import load_jobs
from cli.console import Console
from cli.embedded import aws
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import running

PAGE, CHART, SAID = "benchmarks.md", "benchmarks.svg", "## What the figures say"


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    console, root, sizes = Console(), project_root(), SIZES[options.size]
    systems = chosen(options.system, sizes.systems)
    results = Results(machine.facts(root, sizes.name))
    with running(root, console.progress()) as stack, tempfile.TemporaryDirectory() as folder:
        if any(each.name == "connect" for each in systems):
            jars.download(root, console.progress())
        job = replace(load_jobs(root / "calve.yaml")[0], tables=())
        if job.lake.endpoint:
            aws.make_bucket(urlsplit(job.lake.warehouse).netloc, job.name, job.lake.endpoint)
        bench = Bench(Scene(stack, job, Path(folder)), console, systems, results)
        for name in WORKLOADS if options.workload is None else WORKLOADS.keys() & {options.workload}:
            bench.throughput(name, sizes if name in sizes.records or not options.workload else FULL)
        for name in SECTIONS if options.workload is None else SECTIONS.keys() & {options.workload}:
            if not bench.section(name, sizes) and options.workload:
                bench.section(name, FULL)
    _keep(root, results, whole=not options.system and not options.workload and sizes.name != "quick")
    console.table("targets", target_rows(verdicts(results)))
    if sizes is QUICK:
        console.event("left out", what=LEFT_OUT, fix="run `make bench`")


@dataclass(frozen=True, slots=True)
class Bench:
    """Measures one thing after the other; what fails is told, and the rest goes on."""

    scene: Scene
    console: Console
    systems: Sequence[System]
    results: Results

    def throughput(self, name: str, sizes: Sizes) -> None:
        if name not in sizes.records:
            return
        for each in throughput(self.scene, self.console, WORKLOADS[name], self.systems, sizes):
            if isinstance(each, Failure):
                self._failed(each)
            else:
                self.results.throughput.append(each)
        self.console.table(name, throughput_rows(figures(self.results.throughput), name))

    def section(self, name: str, sizes: Sizes) -> bool:
        """Tell whether there was anything to measure."""
        rows: list[dict[str, Any]] = []
        try:
            rows.extend(SECTIONS[name](self.scene, self.console, self.systems, sizes))
        except Exception as error:  # noqa: BLE001 whatever it is, the others' figures are kept
            self._failed(Failure(name, "", 1, f"{type(error).__name__}: {error}"))
        if rows:
            self.results.others[name] = rows
            self.console.table(name, rows)
        return bool(rows) or any(each.workload == name for each in self.results.failures)

    def _failed(self, failure: Failure) -> None:
        self.results.failures.append(failure)
        self.console.event("not measured", **asdict(failure))


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
