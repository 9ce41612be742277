"""Functions that numba compiles: once on a machine, kept on disk for every later process.

A kernel calls kernels of its own file only: numba looks at no other file to tell whether what it kept is out of date. In a loop
write `a <= b and b < c`: numba makes something slow of `a <= b < c`.
To run kernels with bounds checks set NUMBA_BOUNDSCHECK=1, and NUMBA_CACHE_DIR to a new directory.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from numba import njit, types

from calve.errors import Fatal

BYTES, PLACES, LONGS = (
    types.Array(each, 1, "C", readonly=True) for each in (types.uint8, types.int32, types.int64)
)
"""What a kernel reads: bytes, places in them, numbers. In a signature each takes writable arrays too."""
BYTES_OUT, PLACES_OUT, LONGS_OUT = (
    types.Array(each, 1, "C") for each in (types.uint8, types.int32, types.int64)
)
"""What it writes."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(signature: object, *, inline: bool = False) -> Callable[[_Function], _Function]:
    """Compile for one signature (numba's, as text or types) where the module is imported; runs without Python's lock.

    inline: for what a loop calls for each record: a call costs more than what it does.
    """

    def compiled(function: _Function) -> _Function:
        return cast("_Function", njit(signature, cache=True, nogil=True, forceinline=inline)(function))

    return compiled


def _keep_in_temporary_directory() -> None:
    """Beside sources in a zip nothing can be kept, and numba then takes the user's cache, which a container may lack.

    What is kept is code that later processes run: only a directory that nobody else can write is taken.
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
