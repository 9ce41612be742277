"""What the explanations of all formats share: the path to the place that is wrong, and a bound on the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Misfit(Exception):
    """A place of a value, what its schema expects there, and the kind of what is there; never a part of the value."""

    def __init__(self, where: str, expected: str, found: str) -> None:
        super().__init__(f"{where}: expected {expected}, found {found}")


class GaveUpError(Exception):
    """The value takes more steps than are left."""


class Walk:
    """A way through one value. `top` is what the value is called; `left` is how many steps may follow.

    unfit: what was read and is no value of its column. It counts unless a later value replaces it.
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
        """Inside, the way is in this part of the value."""
        self.path.append(part)
        yield
        self.path.pop()

    @contextmanager
    def apart(self) -> Iterator[list[Misfit]]:
        """What is unfit inside, which does not count by itself: a later value may replace it."""
        kept, self.unfit = self.unfit, []
        yield self.unfit
        self.unfit = kept

    def wrong(self, expected: str, found: str) -> Misfit:
        where = "".join(each if each.startswith("[") else f".{each}" for each in self.path)
        return Misfit(where.removeprefix(".") or self._top, expected, found)

    def varint(self, data: bytes, place: int, most: int, expected: str, end: str) -> tuple[int, int]:
        """The number of at most so many bytes at a place of the data, whose end is called `end`, and the place behind it."""
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
    return noun if noun == "bytes" else f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
