"""A mail as HTML that old mail programs lay out, too: tables and inline styles, nothing that is loaded."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lambdas.export_notify.mail import Words

FONT = "font-family:'Segoe UI',system-ui,-apple-system,Roboto,Helvetica,Arial,sans-serif"
_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>{title}</title>
</head>
<body style="margin:0;padding:0;background:#eef3f7">
<table role="presentation" width="100%" cellpadding="0" cellspacing="0" style="background:#eef3f7">
<tr><td align="center" style="padding:24px 12px">
<table role="presentation" width="100%" cellpadding="0" cellspacing="0" style="max-width:560px;background:#ffffff;
border:1px solid #dbe4ec;border-top:4px solid #0b6a8f;border-radius:10px;{font};color:#14212d;font-size:16px;line-height:1.5">
<tr><td style="padding:32px">
{body}
</td></tr>
</table>
</td></tr>
</table>
</body>
</html>
"""


def render(words: Words) -> str:
    """Lay out a mail's words; every one of them is escaped."""
    body = [
        f'<h1 style="margin:0;font-size:26px;line-height:1.2">{escape(words.title)}</h1>',
        f'<p style="margin:4px 0 20px;color:#526373;font-size:17px">{escape(words.lead)}</p>',
        *(_note(note) for note in words.notes),
        *(_button(label, url) for label, url in words.buttons),
    ]
    if words.facts:
        rows = "\n".join(_fact(name, value) for name, value in words.facts)
        body.append(
            '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" style="margin:20px 0;'
            f'border-top:1px solid #dbe4ec">\n{rows}\n</table>'
        )
    body += [
        f'<p style="margin:0 0 8px;color:#526373;font-size:14px">{escape(line)}</p>' for line in words.closing
    ]
    return _DOCUMENT.format(title=escape(words.title), font=FONT, body="\n".join(body))


def _note(text: str) -> str:
    style = "margin:0 0 12px;padding:10px 14px;background:#fdf1d8;color:#7a4b00;border-radius:8px"
    return f'<p style="{style}">{escape(text)}</p>'


def _button(label: str, url: str) -> str:
    style = "display:inline-block;padding:14px 26px;color:#ffffff;font-weight:600;text-decoration:none"
    return (
        '<table role="presentation" cellpadding="0" cellspacing="0" style="margin:16px 0"><tr>'
        f'<td style="background:#0b6a8f;border-radius:8px"><a href="{escape(url)}" style="{style}">{escape(label)}</a>'
        "</td></tr></table>"
    )


def _fact(name: str, value: str) -> str:
    cell = "padding:8px 0;border-bottom:1px solid #dbe4ec;vertical-align:top"
    if name.startswith("SHA-256"):
        mono = "font-family:Menlo,Consolas,monospace;font-size:12px;color:#14212d;word-break:break-all"
        return (
            f'<tr><td colspan="2" style="{cell};color:#526373;font-size:14px">{escape(name)}<br>'
            f'<span style="{mono}">{escape(value)}</span></td></tr>'
        )
    return (
        f'<tr><td style="{cell};color:#526373;padding-right:16px;white-space:nowrap">{escape(name)}</td>'
        f'<td align="right" style="{cell}">{escape(value)}</td></tr>'
    )
