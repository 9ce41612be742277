"""The pictures of the documentation, each made of what calve shows, in .calve/screenshots/docs.

If a look has changed, its test fails: view the new picture, then copy it to docs/pictures.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from rich.terminal_theme import MONOKAI

from calve.config.publishing import Export
from cli.look.health import TableStatus
from cli.look.status.command import drawn
from cli.look.status.overview import Overview
from lambdas.export_notify.mail import Manifest, Window, by_link, new_file
from lambdas.links import Link, Part
from tests.browser.chromium import Chromium
from tests.browser.conftest import FOLDER, NOW, RUN, Site
from tests.browser.test_console import EXPORTS, serving
from tests.browser.test_page import PICTURES
from tests.unit.cli.look.test_status_screen import ORDERS

pytestmark = pytest.mark.long
AT = datetime(2026, 11, 23, 3, 29, 17, tzinfo=UTC)
KEPT = Path(__file__).parents[2] / "docs" / "pictures"
MADE = PICTURES / "docs"
FILES = (Part(f"{RUN}/weekly_trades_2026-11-02_2026-11-09.csv", 12_345, 1_234_567, "3f9a" * 16),)


def shop() -> Overview:
    """A deployment with a table that stopped, one that is late, one with dead letters, and one in order."""

    def table(name: str, rows: int, files: int, **more: object) -> TableStatus:
        seen = replace(ORDERS, table=f"shop.{name}", topic=name, rows=rows, files=files, due=())
        return replace(seen, bytes=files * 90_000_000, **more)  # type: ignore[arg-type]

    expired = "offsets 1840 to 2611 of partition 2 expired before they were read"
    fix = "on_data_loss: continue"
    made = [
        table("users", 48_210, 12, state="suspended", code="offsets_expired", reason=expired, fix=fix),
        table("payments", 7_904_112, 96, lag_records=24_310, lag_s=97.0, freshness_p95_s=99.0),
        table("clicks", 310_553_870, 1_204, dead_letters={"truncated": 34}),
        table("orders", 12_345_678, 120),
    ]
    return Overview("shop", AT, made, exports=EXPORTS)


def terminal() -> str:
    """`calve status` on a terminal of 100 columns."""
    console = Console(
        width=100, file=io.StringIO(), record=True, force_terminal=True, color_system="truecolor"
    )
    console.print(drawn(shop(), 100))
    picture = console.export_svg(title="calve status", theme=MONOKAI)
    return f"<body style='margin:0;background:#fff'>{re.sub('@font-face {.*?}', '', picture, flags=re.DOTALL)}</body>"


def mail() -> str:
    """The mail of a weekly export to an analyst."""
    start = datetime(2026, 11, 2, tzinfo=UTC)
    export = Export(
        "weekly_trades",
        "trading",
        "stock_trades",
        "created_at",
        "cron(0 6 ? * MON *)",
        ("analyst@example.com",),
    )
    window = Window(start, start + timedelta(days=7), "UTC")
    manifest = Manifest(
        f"{FOLDER}/manifest.json", export, window, 12_345, FILES, True, None, False, False, start, None
    )  # fmt: skip
    link = Link(
        *("link", "key", export.name, manifest.key, FILES, None, NOW, NOW + 604_800, 50),
        *("Weekly trades", str(window), "UTC", 12_345, True),
    )
    return new_file(manifest, by_link(link, "https://example.com/link")).html


def seen(browser: Chromium, name: str, url: str, width: int, height: int, *, scripts: bool = False) -> None:
    """Keep the picture of the whole page, and compare its size with that of the documentation."""
    browser.look(width=width, height=height, dark=False, phone=False)
    browser.call("Emulation.setScrollbarsHidden", hidden=True)
    browser.open(url, scripts=scripts)
    browser.screenshot(MADE / f"{name}.png")
    (made, kept) = ((each / f"{name}.png").read_bytes() for each in (MADE, KEPT))
    assert near(size_of(made), size_of(kept)), f"view {MADE / name}.png, then copy it to {KEPT}"


def size_of(picture: bytes) -> tuple[int, int]:
    """Width and height in the header of a PNG file."""
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def near(made: tuple[int, int], kept: tuple[int, int]) -> bool:
    """Fonts of another machine make lines a little higher."""
    return made[0] == kept[0] and abs(made[1] - kept[1]) <= kept[1] * 0.15


@pytest.mark.parametrize("page", [terminal, mail])
def test_a_text_is_shown_as_in_the_documentation(
    browser: Chromium, tmp_path: Path, page: Callable[[], str]
) -> None:
    name = page.__name__
    file = tmp_path / f"{name}.html"
    file.write_text(page(), encoding="utf-8")
    seen(browser, name, file.as_uri(), *((1000, 100) if page is terminal else (640, 100)))


def test_the_download_page_is_shown_as_in_the_documentation(browser: Chromium, site: Site) -> None:
    seen(browser, "download", site.link(), 800, 100)


def test_the_console_is_shown_as_in_the_documentation(browser: Chromium) -> None:
    with serving(lambda _: shop()) as url:
        seen(browser, "console", url, 1200, 100, scripts=True)
