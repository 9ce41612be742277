"""The pages: HTML and one style sheet, nothing else; no script, no font, no image is loaded."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lambdas import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lambdas.links import Link, Part

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Strict-Transport-Security": "max-age=63072000",
}

_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def headers(form_target: str | None = None) -> dict[str, str]:
    """Headers of a page; with `form_target`, its forms may post to their own address and be redirected there."""
    forms = f"'self' {form_target}" if form_target else "'none'"
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {forms}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    return SAFE | {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy}


def not_found() -> str:
    return _document(
        "Link not found",
        """<h1>This link does not work</h1>
<p class="lead">It may have expired, been used up or been withdrawn, or a part of it was lost on its way here.</p>
<p>Copy the whole link from the mail and try again in a few minutes. If that does not help, ask for a new one: the mail
says whom.</p>""",
    )


def render(link: Link, numbers: Sequence[int], token: str | None = None) -> str:
    """The page of these parts, counted from 1.

    With `token` each part's button posts to `TOKEN/NUMBER`, else to the page itself.
    """
    parts = [link.parts[number - 1] for number in numbers]
    which = f" · part {numbers[0]} of {len(link.parts)}" if len(numbers) < len(link.parts) else ""
    body = [
        f"<h1>{escape(link.title)}</h1>",
        f'<p class="lead">{escape(link.window)}{which}</p>',
        _state(link),
        *(
            _button(part, f"Download part {number}", f"{token}/{number}")
            if token
            else _button(part, "Download CSV", None)
            for number, part in zip(numbers, parts, strict=True)
        ),
        "<dl>",
        _fact("Time zone", link.time_zone),
        _fact("Rows", f"{sum(part.rows for part in parts):,}"),
        _fact("Size", wording.size(sum(part.size_bytes for part in parts))),
        _fact("Link expires", wording.clock(link.expires_at, link.time_zone)),
        *(
            _fact(f"SHA-256 of part {number}" if token else "SHA-256", part.sha256, "hash")
            for number, part in zip(numbers, parts, strict=True)
        ),
        "</dl>",
        _owner(link),
    ]
    return _document(f"{link.title}, {link.window}", "\n".join(body))


def _state(link: Link) -> str:
    if link.complete:
        note = (
            '<p class="state complete"><strong>Complete.</strong> Every record of this window is in it.</p>'
        )
    else:
        upto = f", ingested up to {escape(link.ingested_until)}" if link.ingested_until else ""
        note = f'<p class="state incomplete"><strong>Incomplete</strong>{upto}. Records may be missing.</p>'
    if link.correction:
        note += '\n<p class="state correction"><strong>Correction.</strong> It replaces the earlier file.</p>'
    return note


def _button(part: Part, verb: str, action: str | None) -> str:
    target = f' action="{escape(action)}"' if action else ""
    what = f"{wording.rows(part.rows)} · {wording.size(part.size_bytes)}"
    return (
        f'<form method="post"{target}>\n<button type="submit"><span class="verb">{verb}</span> '
        f'<span class="what">{what}</span></button>\n<p class="file">{escape(part.file)}</p>\n</form>'
    )


def _fact(name: str, value: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f"<div><dt>{escape(name)}</dt><dd{marked}>{escape(value)}</dd></div>"


def _owner(link: Link) -> str:
    whose = "you alone" if link.recipient else "the recipients of this export"
    return f"<footer>This link is meant for {whose}: please do not pass it on.</footer>"


def _document(title: str, body: str) -> str:
    return _DOCUMENT.format(title=escape(title), style=STYLE, body=body)
