"""Everything that is wrong with a link gets one answer from the deployed function, and leaves nothing in its log."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from http.client import HTTPConnection
from itertools import islice, product
from urllib.parse import urlsplit

import pytest

from cli.config import Common
from cli.embedded import aws
from cli.exports import Exports
from lambdas.links import Link, Links
from lambdas.tokens import KEY_BYTES, Keys, new_link_id, sign
from tests.integration.support.engine import until
from tests.integration.support.exporting import (
    OF_THE_REQUEST,
    Answer,
    Deployment,
    last_monday,
    link_id,
    said,
)
from tests.integration.support.functions import Log, settings

SUNDAY = last_monday() + timedelta(days=6)
ALPHABET = string.ascii_letters + string.digits + "-_"
HOUR_S = 3600


@dataclass
class World:
    """A link that works, and all that its forgers could wish for."""

    weekly: Deployment
    token: str
    others_token: str
    link: Link
    links: Links
    keys: Keys
    refusal: Answer

    def ask(self, method: str, path: str) -> Answer:
        """What the address answers, asked for a path as it stands: a browser would tidy it."""
        url = urlsplit(aws.reachable(self.weekly.url, self.weekly.stack.aws_endpoint))
        connection = HTTPConnection(url.hostname or "", url.port, timeout=60)
        try:
            connection.request(method, f"{url.path}{path}")
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            kept = {name: value for name, value in headers.items() if name not in OF_THE_REQUEST}
            return Answer(answer.status, kept, answer.read())
        finally:
            connection.close()

    def refused(self, *paths: str, methods: Sequence[str] = ("GET", "POST")) -> None:
        """All of these get the one answer, and none is in the log: a visit after them is all that it has."""
        before = Log(self.weekly, "Download")
        assert self.works(self.token)
        until(lambda: before.holding("LinkPages"))  # and so is, by now, whatever was asked before
        log = Log(self.weekly, "Download")
        for path, method in product(paths, methods):
            assert self.ask(method, path) == self.refusal, (method, path)
        assert self.works(self.token)
        until(lambda: len(log.lines()) > 1)
        visit, metrics = log.lines()
        assert (json.loads(visit)["message"], json.loads(metrics)["LinkPages"]) == ("link.page", [1.0])

    def works(self, token: str) -> bool:
        return self.ask("GET", token).status == 200

    def signed(self, **changes: object) -> str:
        """A true token of a link like this one, but for these fields of its row."""
        row = replace(self.link, id=new_link_id(), **changes)  # type: ignore[arg-type]
        self.links.add(row)
        return sign(self.keys, row.id, int(time.time()) + HOUR_S)


@pytest.fixture(scope="module")
def world(weekly: Deployment) -> World:
    tokens = []
    for export, title in (("hasty_trades", "Hasty trades"), ("weekly_trades", "Weekly trades")):
        weekly.run(export, SUNDAY)
        tokens.append(weekly.mail(f"{title}, {said(SUNDAY, 1)}").link.rpartition("/")[2])
    links = Exports.find(Common(weekly.config)).links
    secret = settings(weekly, "Download")["LINK_KEYS_SECRET"]
    keys = Keys.parse(weekly.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"])
    link = links.find(link_id(tokens[0]))
    assert link
    refusal = weekly.get(f"{weekly.url}nobodys")
    assert refusal.status == 404
    return World(weekly, tokens[0], tokens[1], link, links, keys, refusal)


def test_a_token_that_was_altered_or_signed_by_another_is_refused(world: World) -> None:
    payload, mac = world.token.split(".")
    others_payload, others_mac = world.others_token.split(".")
    other = "A" if payload[9] != "A" else "B"
    wrong = bytes(KEY_BYTES)
    later = world.link.expires_at + HOUR_S
    world.refused(
        f"{payload[:9]}{other}{payload[10:]}.{mac}",
        f"{payload}.{mac[1:]}{mac[0]}",
        f"{payload}.{others_mac}",
        f"{others_payload}.{mac}",
        sign(Keys(world.keys.current, {world.keys.current: wrong}), world.link.id, later),
        sign(Keys("k77", {"k77": wrong}), world.link.id, later),
        sign(world.keys, new_link_id(), later),
        payload,
        world.link.id,
    )


def test_a_token_is_refused_once_its_time_or_its_rows_is_over(world: World) -> None:
    now = int(time.time())
    assert world.works(sign(world.keys, world.link.id, now + HOUR_S))
    world.refused(sign(world.keys, world.link.id, now - 1), world.signed(expires_at=now - 1))


def test_a_true_token_is_refused_when_its_row_says_no(world: World) -> None:
    assert world.works(world.signed())
    gone = replace(world.link.parts[0], key=f"{world.link.parts[0].key}.gone")
    world.refused(
        world.signed(revoked=True),
        world.signed(downloads=world.link.max_downloads),
        world.signed(key_id="k77"),
        world.signed(parts=(gone,)),
    )


def test_a_link_is_refused_once_it_is_revoked(world: World) -> None:
    token = world.signed()
    assert world.works(token)
    id = link_id(token)
    assert world.weekly.calve("link", "revoke", id)["revoked"] == [id]
    world.refused(token)


def test_a_link_is_refused_once_it_is_used_up(world: World) -> None:
    token = world.signed(max_downloads=2)
    assert world.ask("HEAD", token).status == world.ask("GET", token).status == 200
    assert [world.ask("POST", token).status for _ in range(2)] == [302, 302]
    world.refused(token)


def test_tricks_with_the_path_are_refused(world: World) -> None:
    token = world.token
    world.refused(
        *(f"{token}/{part}" for part in ("0", "01", "2", "99999", "1/1", "x", "..", "%2e%2e", "../1")),
        *(f"{before}{token}" for before in ("/", "./", "../", "x/", "x/../", "%2f", "%00", ".")),
        *(f"{token}{after}" for after in ("/", "//", ".", "=", "%00", "%0a", "%20", ";x", ".csv")),
        token.lower(),
        token.replace(".", "%2e%2e"),
        "",
        "manifest.json",
        world.link.manifest,
        world.link.parts[0].key,
        "../" * 8 + "etc/passwd",
        "A" * 4000,
    )
    world.refused(token, methods=("PUT", "DELETE", "PATCH"))


def test_random_tokens_are_refused(world: World) -> None:
    world.refused(*islice(random_tokens(world), 50), methods=("POST",))


@pytest.mark.full
def test_a_thousand_random_tokens_are_refused(world: World) -> None:
    world.refused(*islice(random_tokens(world), 1000), methods=("POST",))


def random_tokens(world: World) -> Iterator[str]:
    """Noise, what looks like a token, what strangers sign, and the true one with a bit turned over."""
    source = random.Random(4)
    payload, mac = (base64.urlsafe_b64decode(f"{part}==") for part in world.token.split("."))
    while True:
        key = source.randbytes(KEY_BYTES)
        name = source.choice((world.keys.current, f"k{source.randrange(1, 10**6)}"))
        yield "".join(source.choices(ALPHABET, k=source.randrange(1, 140)))
        yield f"{encoded(source.randbytes(len(payload)))}.{encoded(source.randbytes(len(mac)))}"
        yield sign(Keys(name, {name: key}), world.link.id, world.link.expires_at)
        yield ".".join(map(encoded, turned(source, payload, mac)))


def turned(source: random.Random, *parts: bytes) -> tuple[bytes, ...]:
    """The same but for one bit."""
    whole = bytearray(b"".join(parts))
    whole[source.randrange(len(whole))] ^= 1 << source.randrange(8)
    return bytes(whole[: len(parts[0])]), bytes(whole[len(parts[0]) :])


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
