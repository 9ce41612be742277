"""What the explanations of all formats share: the path to the place that is wrong, and a bound on the work."""

from __future__ import annotations


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

    def wrong(self, expected: str, found: str) -> Misfit:
        where = "".join(each if each.startswith("[") else f".{each}" for each in self.path)
        return Misfit(where.removeprefix(".") or self._top, expected, found)

    def end(self) -> None:
        """Raises the first `Misfit` that no later value has replaced."""
        if self.unfit:
            raise self.unfit[0]


class LastOfEach:
    """The unfit values of a map: of several entries with one key, only the last counts."""

    def __init__(self, walk: Walk) -> None:
        self._walk, self._kept = walk, walk.unfit
        self._by_key: dict[object, list[Misfit]] = {}

    def begin(self) -> None:
        self._walk.unfit = []

    def add(self, key: object) -> None:
        self._by_key[key] = self._walk.unfit

    def end(self) -> None:
        self._walk.unfit = self._kept + [each for found in self._by_key.values() for each in found]


def article(noun: str) -> str:
    return noun if noun == "bytes" else f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
