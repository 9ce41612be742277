"""What the brokers' answers come to. A real broker is asked in tests/integration/deploy/test_doctor.py."""

from __future__ import annotations

import socket

import pytest
from confluent_kafka.admin import AclOperation

from calve.config.job import Kafka, Table
from lambdas.doctor.brokers import OUT_OF_REACH, READS, WRITES, judged, kafka
from lambdas.doctor.finding import Finding

TABLES = [Table("t", "t")]


def test_servers_without_an_address_and_closed_ports_end_it() -> None:
    (unknown,) = kafka(Kafka("broker.invalid:9092"), "us-east-1", TABLES)
    assert (unknown.check, unknown.state) == ("kafka servers", "fail")
    assert unknown.detail == "broker.invalid has no address"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (closed,) = kafka(Kafka(f"127.0.0.1:{port}"), "us-east-1", TABLES)
    assert closed.detail == f"127.0.0.1:{port}: Connection refused"


def test_a_private_network_is_looked_at_from_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr("socket.create_connection", silent)
    (found,) = kafka(Kafka("10.0.0.1:9092"), "us-east-1", TABLES)
    assert (found.state, found.cure) == ("fail", OUT_OF_REACH)
    assert "calve doctor --remote" in found.cure


def test_rights_are_one_row_where_they_suffice_and_one_each_where_they_do_not() -> None:
    rights = {"a": READS | WRITES, "b": frozenset({AclOperation.DESCRIBE}), "c": None}
    read = list(judged(rights, READS, "topics"))
    assert [(each.check, each.state) for each in read] == [
        ("topic b", "fail"),
        ("topic c", "warn"),
        ("topics", "ok"),
    ]
    assert read[2].detail == "the user may describe and read 1 of 3"
    written = list(judged(rights, WRITES, "output topics"))
    assert written[0] == Finding(
        "output topic b",
        "fail",
        "the user may not WRITE",
        "kafka-acls --add --allow-principal User:NAME --topic b --operation Write",
    )
    assert (written[1].state, written[1].detail) == ("absent", "not there yet")
