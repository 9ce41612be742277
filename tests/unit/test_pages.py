"""Every link of the documentation leads somewhere, and every page of it is reached from the README."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests import readers
from tests.combinations import table

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("bench/*.md")]
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
KINDS = {"Learn": "Tutorial", "Do": "How-to", "Look up": "Reference", "Understand": "Explanation"}
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            found = ((page.parent / link.partition("#")[0]).resolve() for link in links(page))
            waiting += [each for each in found if each.suffix == ".md" and each.exists()]
    assert [name(page) for page in PAGES if page not in reached] == []


def test_each_page_says_its_kind() -> None:
    """A page of `docs` is of one kind. Its third line says which, and the site lists it there."""
    index = (ROOT / "docs" / "site" / "index.md").read_text(encoding="utf-8")
    listed: dict[str, str] = {}
    for caption, pages in re.findall(r":caption: (.+)\n\n((?:.+\n)*)```", index):
        listed |= dict.fromkeys(re.findall(r"^\.\./([\w-]+)$", pages, re.MULTILINE), KINDS.get(caption, ""))
    said = {page.stem: page.read_text(encoding="utf-8").split("\n")[2] for page in ROOT.glob("docs/*.md")}
    assert said == {name: f"*{kind}*" for name, kind in listed.items()}


def test_headings_have_the_anchors_that_a_browser_shows() -> None:
    assert anchor("What is left, and where") == "what-is-left-and-where"
    assert anchor("`calve dead-letters list`") == "calve-dead-letters-list"
    assert anchor("The [budget](x.md) of `a_b`") == "the-budget-of-a_b"


@cache
def links(page: Path) -> tuple[str, ...]:
    """Those within the repository."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return tuple(each for each in LINK.findall(text) if not re.match(r"[a-z]+:", each))


@cache
def anchors(page: Path) -> frozenset[str]:
    """One for each heading; a heading that comes again has a number."""
    text = FENCED.sub("", page.read_text(encoding="utf-8")) if page.suffix == ".md" else ""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        wanted = made = anchor(heading)
        number = 0
        while made in found:
            number += 1
            made = f"{wanted}-{number}"
        found.add(made)
    return frozenset(found)


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def test_what_combines_with_which_mode_is_what_the_code_says() -> None:
    """`python -m tests.combinations` writes the table."""
    assert table() in (ROOT / "docs" / "modes.md").read_text(encoding="utf-8")


def test_the_readers_of_the_page_are_those_that_a_test_compares() -> None:
    """`python -m tests.readers` writes the table."""
    assert readers.table() in (ROOT / "docs" / "query.md").read_text(encoding="utf-8")
