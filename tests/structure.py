"""The figures of the code's structure, which `make structure` prints and a test holds to their limits."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("calve", "glue_jobs", "lambdas", "stacks", "cli")

Graph = Mapping[str, frozenset[str]]
"""Name -> the names that it imports, also for types alone."""


@dataclass(frozen=True, slots=True)
class Structure:
    """Of one package. files: without `__init__.py`, which has no code. folder: the largest one and its modules.

    levels: of folders; the package is the first. floors: the rooms of the longest chain of imports. circles: modules that need
    each other.
    """

    files: int
    lines: int
    folder: tuple[str, int]
    levels: int
    floors: tuple[str, ...]
    circles: tuple[tuple[str, ...], ...]


def structure(package: str, modules: Graph) -> Structure:
    paths = sorted((ROOT / package).rglob("*.py"))
    folders = Counter(
        path.parent.relative_to(ROOT).as_posix() for path in paths if path.name != "__init__.py"
    )
    names = {name for name in modules if name.split(".")[0] == package}
    own = {name: modules[name] & names for name in names}
    return Structure(
        files=sum(folders.values()),
        lines=sum(path.read_text().count("\n") for path in paths),
        folder=folders.most_common(1)[0],
        levels=max(name.count("/") + 1 for name in folders),
        floors=longest(rooms(own)),
        circles=tuple(tuple(sorted(each)) for each in circles(own)),
    )


def graph() -> Graph:
    """The imports of all modules."""
    found = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {each: frozenset(found.find_modules_directly_imported_by(each)) for each in found.modules}


def rooms(modules: Graph) -> Graph:
    """The imports of folders of a package, each of the others; a module beside the folders is part of no room."""
    found: dict[str, set[str]] = {}
    for name, imported in modules.items():
        if (room := _room(name)) is not None:
            others = {other for each in imported if (other := _room(each)) not in (None, room)}
            found.setdefault(room, set()).update(each for each in others if each)
    return {name: frozenset(each for each in others if each in found) for name, others in found.items()}


def _room(module: str) -> str | None:
    room = ".".join(module.split(".")[:2])
    return room if (ROOT / room.replace(".", "/")).is_dir() and "." in room else None


def circles(graph: Graph) -> Iterator[frozenset[str]]:
    """Names that reach each other."""
    reached = {name: frozenset(_reached(graph, name)) for name in graph}
    alike = {frozenset(other for other in each if name in reached[other]) for name, each in reached.items()}
    yield from sorted((each for each in alike if len(each) > 1), key=sorted)


def _reached(graph: Graph, name: str) -> Iterable[str]:
    found, waiting = {name}, [name]
    while waiting:
        new = graph.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return found


def longest(graph: Graph) -> tuple[str, ...]:
    """The longest chain, from the top; of a graph with circles nothing."""
    if any(True for _ in circles(graph)):
        return ()
    chains: dict[str, tuple[str, ...]] = {}

    def chain(name: str) -> tuple[str, ...]:
        if name not in chains:
            below = max((chain(each) for each in sorted(graph[name])), key=len, default=())
            chains[name] = (name.split(".")[1], *below)
        return chains[name]

    return max(map(chain, sorted(graph)), key=len, default=())


def picture() -> str:
    """The rooms of each package, as import-linter's contracts order them, side by side; functions have no rooms."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    of_rooms = [each for each in contracts if each.get("containers", ["lambdas"]) != ["lambdas"]]
    columns = [
        [each["containers"][0], "", *(floor.replace(" : ", " | ") for floor in each["layers"])]
        for each in of_rooms
    ]
    widths = [max(map(len, each)) for each in columns]
    floors = zip_longest(*columns, fillvalue="")
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(each, widths, strict=True)) for each in floors
    )
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    modules = graph()
    found = {each: structure(each, modules) for each in PACKAGES}
    print("package     files   lines  largest folder               levels  floors  circles")
    for package, of in found.items():
        folder, count = of.folder
        print(
            f"{package:<10} {of.files:>6} {of.lines:>7}  {count:>2} {folder:<25} {of.levels:>6}"
            f"  {len(of.floors):>6}  {len(of.circles):>7}"
        )
    together = found.values()
    print(f"{'together':<10} {sum(of.files for of in together):>6} {sum(of.lines for of in together):>7}")
    for package, of in found.items():
        print(f"\n{package}: {' > '.join(of.floors)}")
        for circle in of.circles:
            print(f"  circle: {' '.join(circle)}")
    print(f"\n{picture()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
