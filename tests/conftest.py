from functools import cache

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import settings

settings.register_profile(
    "calve", deadline=None, print_blob=True
)  # two cores make any deadline a matter of luck
settings.load_profile("calve")

# moto begins each mock with a new session, which would read the descriptions of the same services again.
_load_once = cache(JSONFileLoader().load_file)
JSONFileLoader.load_file = lambda _, path: _load_once(path)

COSTLY = ("weekly", "synthesized", "own_root", "shared")
"""Fixtures that are made once for many tests; those go to one worker."""


def pytest_itemcollected(item: pytest.Item) -> None:
    for each in COSTLY:
        if each in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(each))
