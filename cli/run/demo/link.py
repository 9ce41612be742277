"""A mailed link, opened as a browser opens it: the page, its button, the address that expires after a minute."""

from __future__ import annotations

import re

import urllib3

from calve.errors import CalveError

LINK = re.compile(r'https://[^\s"<>]+\.lambda-url\.[^\s"<>]+')
"""In a text or in HTML."""
TIMEOUT_S = 60.0


def lines_behind(page: str) -> list[str]:
    """The lines of the file behind the page's button."""
    request("GET", page, 200)
    address = request("POST", page, 302).headers["location"]
    return request("GET", address, 200).data.decode().splitlines()


def request(method: str, url: str, expected: int) -> urllib3.BaseHTTPResponse:
    answer = urllib3.request(method, url, redirect=False, timeout=TIMEOUT_S)
    if answer.status != expected:
        raise CalveError(f"{method} of the mail's link is answered with {answer.status}")
    return answer
