import gc
from functools import cache
from zlib import crc32

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


def pytest_collection_finish() -> None:
    """Modules and tests live until the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share", metavar="K/N", help="of the long tests, only those of share K of N; K may exceed N"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All long tests do not fit the time of one CI run. Each day takes another share of each file."""
    if not (share := config.getoption("--share")):
        return
    number, count = map(int, share.split("/"))
    taken, left = list[pytest.Item](), list[pytest.Item]()
    for each in items:
        of_others = each.get_closest_marker("long") and (crc32(each.nodeid.encode()) - number) % count
        (left if of_others else taken).append(each)
    config.hook.pytest_deselected(items=left)
    items[:] = taken
