"""Shared by the explanations of all formats: the path to the wrong place, and a limit on the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Misfit(Exception):
    """A place in a value, the expected type, and the kind found; never a part of the value."""

    def __init__(self, where: str, expected: str, found: str) -> None:
        super().__init__(f"{where}: expected {expected}, found {found}")


class GaveUpError(Exception):
    """The value needs more steps than are left."""


class Walk:
    """The way through one value. `top`: the name of the value; `left`: the remaining steps.

    unfit: values that do not fit their column. They count unless a later value replaces them.
    """

    def __init__(self, top: str, left: int) -> None:
        self.path: list[str] = []
        self.unfit: list[Misfit] = []
        self.left = left
        self._top = top

    def step(self, cost: int = 1) -> None:
        self.left -= cost
        if self.left < 0:
            raise GaveUpError

    @contextmanager
    def at(self, part: str) -> Iterator[None]:
        """Inside the block, the path includes this part of the value."""
        self.path.append(part)
        yield
        self.path.pop()

    @contextmanager
    def apart(self) -> Iterator[list[Misfit]]:
        """Collect the misfits of the block separately: a later value may replace them."""
        kept, self.unfit = self.unfit, []
        yield self.unfit
        self.unfit = kept

    def wrong(self, expected: str, found: str) -> Misfit:
        where = "".join(each if each.startswith("[") else f".{each}" for each in self.path)
        return Misfit(where.removeprefix(".") or self._top, expected, found)

    def unfitting(self, expected: str, found: str) -> None:
        """Note a value that does not fit its column."""
        self.unfit.append(self.wrong(expected, found))

    def varint(self, data: bytes, place: int, most: int, expected: str, end: str) -> tuple[int, int]:
        """The number of at most `most` bytes at a place, and the place after it. `end`: the name of the data's end."""
        value = 0
        for shift, byte in enumerate(data[place : place + most]):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                return value, place + shift + 1
        found = end if place + most > len(data) else f"a number of more than {most} bytes"
        raise self.wrong(expected, found)

    def end(self) -> None:
        """Raises the first `Misfit` that no later value has replaced."""
        if self.unfit:
            raise self.unfit[0]


def article(noun: str) -> str:
    if noun == "bytes" or noun.startswith("the "):
        return noun
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
