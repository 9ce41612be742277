"""What a worker's client is made of."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import tempfile
from pathlib import Path

import pytest

from calve.secrets import Redacted
from cli.embedded.kafka import write_certificates
from glue_jobs.kafka.client import Client, Settings, _Socket, _ssl_context, client_of, drop_client
from tests.unit.calve.config.test_kafka_auth import SERVERS

BEGIN = "-----BEGIN CERTIFICATE-----"


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> ssl.SSLObject:
    """The server's side of a handshake in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(back, there, server_hostname="localhost"),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(6):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[1]


def test_a_client_certificate_is_shown_and_left_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities, store = write_certificates(tmp_path)
    key, chain = store.read_text().split(BEGIN, 1)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    client = _ssl_context(authorities.read_text(), BEGIN + chain, key)
    assert list((tmp_path / "temporary").iterdir()) == []
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(store)
    server.load_verify_locations(authorities)
    server.verify_mode = ssl.CERT_REQUIRED
    assert shake_hands(client, server).getpeercert()
    with pytest.raises(ssl.SSLError):
        shake_hands(_ssl_context(authorities.read_text(), None, None), server)


def test_what_a_broker_said_before_it_hung_up_is_read() -> None:
    """kafka-python reads until nothing is there, and takes an end for the end of all: without that pause the text is lost."""
    broker, client = socket.socketpair()
    with _Socket(fileno=client.detach()) as mine:
        broker.sendall(b"refused")
        broker.close()
        assert mine.recv(4) == b"refused"
        with pytest.raises(BlockingIOError):
            mine.recv(4)
        assert mine.recv(4) == b""


def test_settings_travel_and_tell_no_secret() -> None:
    settings = Settings(Redacted(bootstrap_servers=SERVERS, sasl_plain_password="hush"), "k")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "hush" not in repr(settings)


@pytest.mark.parametrize("server", ["b-1.trades.abc123.c2.kafka", "boot-abc.c1.kafka-serverless"])
def test_msk_iam_signs_for_the_region_of_the_cluster(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    properties = Redacted(
        bootstrap_servers=f"{server}.eu-north-1.amazonaws.com:9098",
        security_protocol="SASL_SSL",
        sasl_mechanism="AWS_MSK_IAM",
    )
    Client(Settings(properties, "k")).close()
    assert os.environ == {"AWS_DEFAULT_REGION": "eu-north-1"}


def test_a_process_keeps_one_client_until_it_is_dropped() -> None:
    settings = Settings(Redacted(bootstrap_servers=SERVERS, security_protocol="PLAINTEXT"), "k")
    first = client_of(settings)
    assert client_of(pickle.loads(pickle.dumps(settings))) is first
    drop_client(settings)
    assert client_of(settings) is not first
    drop_client(settings)
