"""Functions compiled by numba: once per machine, cached on disk for later processes.

In a loop write `a <= b and b < c`: numba makes slow code from `a <= b < c`.
To run kernels with bounds checks set NUMBA_BOUNDSCHECK=1, and NUMBA_CACHE_DIR to a new directory. In `digest`, which reads by
address, the checks trust the sizes that Arrow gives.
"""

from __future__ import annotations

import inspect
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numba import config, njit, types
from numba.core.caching import (
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
    ZipCacheLocator,
)

from calve.errors import Fatal

BYTES, PLACES, LONGS = (
    types.Array(each, 1, "C", readonly=True) for each in (types.uint8, types.int32, types.int64)
)
"""Input types: bytes, places in them, numbers. In a signature they accept writable arrays too."""
BYTES_OUT, PLACES_OUT, LONGS_OUT = (
    types.Array(each, 1, "C") for each in (types.uint8, types.int32, types.int64)
)
"""Output types."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(signature: object, *, inline: bool = False) -> Callable[[_Function], _Function]:
    """Compile for one signature (numba's, as text or types) at import; runs without the GIL.

    inline: for functions that a loop calls for each record, where the call costs more than the work.
    """

    def compiled(function: _Function) -> _Function:
        return cast("_Function", njit(signature, cache=True, nogil=True, forceinline=inline)(function))

    return compiled


_source = cache(inspect.getsource)


class Locator:
    """Where numba stores a kernel, and from which sources it was made.

    numba's own locators see only the kernel's file. Here a change of a number, an array, a function or a kernel from another
    file counts, too. A zip's kernels are stored by their sources, and not by the path of the zip: each deploy of the same
    release finds them.
    """

    LOCATORS = UserProvidedCacheLocator, InTreeCacheLocator, UserWideCacheLocator, ZipCacheLocator
    stamps: ClassVar[dict[object, str]] = {}
    """The digest of each kernel's sources, by its function."""

    def __init__(self, found: Any, function: Any) -> None:
        self._found = found
        sources = [repr(found.get_source_stamp())]
        for name, value in function.__globals__.items():
            defined = getattr(value, "_defn", value)  # of an intrinsic
            if (kernel := self.stamps.get(getattr(value, "py_func", None))) is not None:
                sources.append(f"{name} {kernel}")
            elif isinstance(value, np.number | np.ndarray):
                sources.append(f"{name} {value.tobytes().hex()}")
            elif isinstance(value, int | float):  # an array of a number above 64 bits has its address
                sources.append(f"{name} {value!r}")
            elif inspect.isfunction(defined) and defined.__module__ != function.__module__:
                sources.append(f"{name} {_source(defined)}")
        self.stamps[function] = self._stamp = sha256("\n".join(sources).encode()).hexdigest()

    @classmethod
    def from_function(cls, function: Any, file: str) -> Self | None:
        locators: Any = cls.LOCATORS
        found = next(filter(None, (each.from_function(function, file) for each in locators)), None)
        return None if found is None else cls(found, function)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_cache_path(self) -> str:
        path: str = self._found.get_cache_path()
        zipped = isinstance(self._found, ZipCacheLocator)
        return str(Path(path).with_name(self._stamp[:32])) if zipped else path

    def ensure_cache_path(self) -> None:
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


# In both places: numba reads the environment again when another variable of it changes.
LOCATOR = f"{__name__}.{Locator.__name__}"
os.environ["NUMBA_CACHE_LOCATOR_CLASSES"] = config.CACHE_LOCATOR_CLASSES = LOCATOR  # type: ignore[attr-defined]


def _keep_in_temporary_directory() -> None:
    """Keep compiled code in the temporary directory: beside sources in a zip, numba would use the user's cache.

    A container may lack that cache. Later processes run this code, so no other user may have write access to the directory.
    """
    directory = Path(tempfile.gettempdir()) / f"calve-kernels-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise Fatal(
            f"compiled code cannot be kept in {directory}: another user can write there", fix="remove it"
        )
    os.environ["XDG_CACHE_HOME"] = str(directory)


if ".zip" in __file__:
    _keep_in_temporary_directory()
