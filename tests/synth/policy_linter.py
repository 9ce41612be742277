"""parliament, which asks setuptools for the place of its files by a module that setuptools no longer has."""

import sys
import types
import warnings
from importlib.util import find_spec
from pathlib import Path


def _resource_filename(package: str, name: str) -> str:
    spec = find_spec(package)
    assert spec
    assert spec.origin
    return str(Path(spec.origin).with_name(name))


_stand_in = types.ModuleType("pkg_resources")
_stand_in.resource_filename = _resource_filename  # type: ignore[attr-defined]
sys.modules.setdefault("pkg_resources", _stand_in)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it leaves its files open
    import parliament  # type: ignore[import-untyped]

__all__ = ["parliament"]
