"""Finds sentences of pages, help and messages that are hard to read: long ones, and those with words of a dialect.

`make words` prints them; a test holds them to none. Code, and text in backticks, counts as one word. The page of the commands has
the help. Messages are the texts in the code of the packages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from tests.structure import PACKAGES, ROOT

PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "examples/*/README.md")
LONGEST = 25
"""In words."""
NAMES, WORDS_OF_A_NAME = 8, 5
SHORTEST = 3
POLICIES = ("Sees how X fares, but no row",)
"""CloudFormation replaces a policy whose description changes, and cannot: its name is taken."""
DIALECT = re.compile(
    r"\b(anew|whoever|whomever|fares?|heed(?:s|ed)?|befalls?|let go|of no use|told|tells? of|of which|dies|died|hence|thereof"
    r"|stands?(?!-in| for)|stood|in the place of)\b",
    re.IGNORECASE,
)
"""Words for which there are plainer ones: again, you, health, respect, happen to, expire, invalid, says, crashes, is."""
NOUN_CLAUSE = re.compile(r"(?:^|: )(?:What|Who|Whatever) (?!\S+ \?)[^?]*$")
"""A relative clause in the place of a noun: "What cannot be read is ..."."""

_MARKUP = re.compile(r"[<{\\|\n]")
_CODE = re.compile(r"```.*?```|<!--.*?-->", re.DOTALL)
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_CELL = re.compile(r"(?<!\\)\|")
_END = re.compile(r"(?<=[.!?])[\"*)]*\s+(?=[\"*(\[]*(?:[A-Z0-9`]|calve ))|(?<=:)\s+(?=[A-Z])")


def paragraphs(page: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables, each in one line. The parts of a cell between semicolons are apart."""
    held: list[str] = []
    for line in (*_CODE.sub("", page).splitlines(), ""):
        text = line.strip()
        is_apart = not text or text.startswith(("#", "|", "<")) or _ITEM.match(text)
        if is_apart and held:
            yield " ".join(held)
            held = []
        if text.startswith("|") and set(text) - set("|-: "):
            yield from (part for cell in _CELL.split(text)[1:-1] for part in cell.strip().split("; "))
        elif text and not text.startswith(("#", "|", "<")):
            held.append(_ITEM.sub("", text, count=1) if _ITEM.match(text) else text)


def sentences(page: str) -> Iterator[str]:
    """As they are read: of a link its text, for code one word."""
    for each in paragraphs(page):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", each)
        text = re.sub(r"`[^`]*`", "`code`", text).replace("**", "")
        yield from filter(None, map(str.strip, _END.split(text)))


def words(sentence: str) -> int:
    return len(re.findall(r"[\w'%-]+", sentence))


def is_list(sentence: str) -> bool:
    """Names one after the other, such as versions of programs: nobody reads them as a sentence."""
    parts = sentence.split(", ")
    return len(parts) >= NAMES and words(sentence) <= WORDS_OF_A_NAME * len(parts)


def faults(page: str) -> Iterator[tuple[str, str]]:
    """Each fault of a page, with its sentence."""
    for each in sentences(page):
        if words(each) > LONGEST and not is_list(each):
            yield f"{words(each)} words", each
        if found := DIALECT.search(each):
            yield f'"{found[0]}"', each
        if NOUN_CLAUSE.search(each):
            yield "a clause as a noun", each


def pages() -> dict[str, str]:
    files = sorted(file for pattern in PAGES for file in ROOT.glob(pattern))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def messages() -> dict[str, str]:
    """By module: its texts of several words, each a paragraph, without docstrings, markup and code."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            texts = _texts(ast.parse(file.read_text(encoding="utf-8")))
            found[file.relative_to(ROOT).as_posix()] = "\n\n".join(filter(_is_message, texts))
    return found


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts below a node; a value in a text is `X`."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Expr(value=ast.Constant()):  # a docstring
                pass
            case ast.Constant(value=str() as text):
                yield text
            case ast.JoinedStr(values=parts):
                yield "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in parts)
            case _:
                yield from _texts(node)


def _is_message(text: str) -> bool:
    return len(text.split()) > SHORTEST and not _MARKUP.search(text) and text not in POLICIES


def main() -> int:
    texts = pages() | messages()
    found = [(name, *fault) for name, text in texts.items() for fault in faults(text)]
    for name, what, sentence in found:
        print(f"{name}: {what}: {sentence}")
    count = sum(words(each) for text in texts.values() for each in sentences(text))
    print(f"{len(found)} faults in {count:,} words")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
