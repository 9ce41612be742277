"""Records per CPU second as bars, beside the limit of the whole path: an SVG that reads on light and on dark ground."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.report import workloads
from bench.results import Figures
from bench.systems.all import TITLES

WIDTH, LABELS, RIGHT = 860, 230, 90
BAR, GAP, HEAD, TITLE = 22, 8, 44, 40
OURS, OUR_ROWS, PEER, LIMIT = "#0b7285", "#66a5ad", "#868e96", "#ced4da"
PARTS = ("limit_fetch", "limit_parse", "limit_decode")
STYLE = """text{font:13px system-ui,sans-serif;fill:#212529}.h{font-size:16px;font-weight:600}
.n{font-variant-numeric:tabular-nums}.m{fill:#495057}.g{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#f1f3f5}.m{fill:#adb5bd}.g{fill:#0d1117}}"""


def svg(figures: Sequence[Figures]) -> str:
    """Bars of the warm rates, a panel for each workload, each with a scale of its own."""
    figures = [each for each in figures if each.system not in PARTS and not each.too_short]
    panels, top = [], TITLE + 14
    for workload in workloads(figures):
        mine = sorted(
            (each for each in figures if each.workload == workload), key=lambda each: -each.warm.median
        )
        panels.append(_panel(workload, mine, top))
        top += HEAD + len(mine) * (BAR + GAP) + 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" role="img"'
        f' aria-label="Records per CPU second">\n<style>{STYLE}</style><rect class="g" width="100%" height="100%"/>\n'
        f'<text class="h" x="20" y="32">Thousand records per CPU second, warm</text>\n{"".join(panels)}</svg>\n'
    )


def _panel(workload: str, figures: Sequence[Figures], top: int) -> str:
    scale = (WIDTH - LABELS - RIGHT) / figures[0].warm.median
    bytes_each = max(each.value_bytes for each in figures)
    lines = [
        f'<text class="m" x="20" y="{top + 20}">{escape(workload)}: values of {bytes_each:.0f} bytes</text>\n'
    ]
    for place, each in enumerate(figures):
        y = top + HEAD - 12 + place * (BAR + GAP)
        length, rate = each.warm.median * scale, each.warm.median / 1000
        shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:,.1f}"
        lines.append(
            f'<text x="{LABELS - 10}" y="{y + 16}" text-anchor="end">{escape(TITLES[each.system])}</text>'
            f'<rect x="{LABELS}" y="{y}" width="{max(length, 1):.1f}" height="{BAR}" rx="3" fill="{_colour(each.system)}"/>'
            f'<text class="n" x="{LABELS + length + 8:.1f}" y="{y + 16}">{shown}</text>\n'
        )
    return "".join(lines)


def _colour(system: str) -> str:
    colours = {"calve_columnar": OURS, "calve_rows": OUR_ROWS, "limit_parquet": LIMIT}
    return colours.get(system, PEER)
