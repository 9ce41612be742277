"""The code's structure stays within its limits (`make structure` prints the figures)."""

import pytest

from tests.structure import PACKAGES, ROOT, Graph, circles, graph, longest, picture, structure

FILES = 400
"""Of all packages together."""
MODULES = 15
LEVELS = 3
FLOORS = 8


@pytest.fixture(scope="module")
def modules() -> Graph:
    return graph()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_within_the_limits(modules: Graph, package: str) -> None:
    found = structure(package, modules)
    assert found.circles == ()
    assert found.folder[1] <= MODULES, found.folder
    assert found.levels <= LEVELS
    assert 0 < len(found.floors) <= FLOORS, found.floors


def test_all_packages_together_are_within_the_limit_of_files(modules: Graph) -> None:
    assert sum(structure(package, modules).files for package in PACKAGES) <= FILES


def test_circles_and_chains_are_found() -> None:
    tree = {"a.b": {"a.c"}, "a.c": {"a.d"}, "a.d": set(), "a.e": {"a.d"}}
    known = {name: frozenset(each) for name, each in tree.items()}
    assert list(circles(known)) == []
    assert longest(known) == ("b", "c", "d")
    round_again = known | {"a.d": frozenset({"a.b"})}
    assert list(circles(round_again)) == [frozenset({"a.b", "a.c", "a.d"})]
    assert longest(round_again) == ()


def test_the_architecture_page_shows_the_rooms_as_the_contracts_order_them() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    assert f"```text\n{picture()}\n```" in page, "paste what `make structure` draws"
    assert page.count("\n") <= 150
