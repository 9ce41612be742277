"""One setting in the dialects of three clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.job import Kafka
from calve.config.kafka_auth import (
    jaas_text,
    java_properties,
    kafka_python_properties,
    librdkafka_properties,
)
from calve.errors import ConfigError
from calve.secrets import Redacted

if TYPE_CHECKING:
    from pathlib import Path

SECRET = Redacted(username="trader", password='a"b\\c')
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"
CHARACTERS = "".join(map(chr, range(0x250))) + "\u2028€😀"
SERVERS = "broker:9092"


def stream_tokenizer(text: str) -> str:
    """One quoted text as `java.io.StreamTokenizer` reads it; nothing may be left over."""
    escapes = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
    assert text[0] == '"'
    read, index = "", 1
    while text[index] != '"':
        assert text[index] not in "\n\r", "a line end closes a quoted text"
        if text[index] == "\\":
            index += 1
            assert text[index] not in "01234567", "an octal escape"
            read += escapes.get(text[index], text[index])
        else:
            read += text[index]
        index += 1
    assert index == len(text) - 1
    return read


@given(st.text(CHARACTERS))
def test_any_text_survives_its_jaas_quoting(value: str) -> None:
    assert stream_tokenizer(jaas_text(value)) == value


@given(st.text(alphabet='"\\\n\r;= ua0', max_size=12))
def test_texts_made_of_the_dangerous_characters_survive_their_jaas_quoting(value: str) -> None:
    assert stream_tokenizer(jaas_text(value)) == value


def test_plaintext_needs_nothing() -> None:
    kafka = Kafka(SERVERS)
    properties = {"bootstrap.servers": SERVERS, "security.protocol": "PLAINTEXT"}
    assert java_properties(kafka, None) == librdkafka_properties(kafka, None) == properties
    assert kafka_python_properties(kafka, None) == {
        name.replace(".", "_"): value for name, value in properties.items()
    }


def test_sasl_plain_over_tls_is_what_confluent_cloud_wants() -> None:
    kafka = Kafka(SERVERS, auth="sasl_plain", tls=True, secret="env:KAFKA")
    assert java_properties(kafka, SECRET) == {
        "bootstrap.servers": SERVERS,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        r'username="trader" password="a\"b\\c";',
    }
    assert librdkafka_properties(kafka, SECRET) == {
        "bootstrap.servers": SERVERS,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "trader",
        "sasl.password": 'a"b\\c',
    }
    assert kafka_python_properties(kafka, SECRET) == {
        "bootstrap_servers": SERVERS,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "trader",
        "sasl_plain_password": 'a"b\\c',
    }


@pytest.mark.parametrize(
    ("mechanism", "spoken"), [(None, "SCRAM-SHA-512"), ("SCRAM-SHA-256", "SCRAM-SHA-256")]
)
def test_scram_speaks_the_chosen_mechanism(mechanism: str | None, spoken: str) -> None:
    kafka = Kafka(SERVERS, auth="sasl_scram", mechanism=mechanism, tls=False, secret="env:KAFKA")
    java, native = java_properties(kafka, SECRET), librdkafka_properties(kafka, SECRET)
    assert java["sasl.mechanism"] == native["sasl.mechanism"] == spoken
    assert java["security.protocol"] == native["security.protocol"] == "SASL_PLAINTEXT"
    assert java["sasl.jaas.config"].startswith(
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
    )


def test_a_name_is_escaped_where_the_client_puts_it_into_scram_as_it_is() -> None:
    kafka = Kafka(SERVERS, auth="sasl_scram", tls=True, secret="env:KAFKA")
    secret = Redacted(username="cn=trader,o=desk", password="a=b")
    assert kafka_python_properties(kafka, secret) == {
        "bootstrap_servers": SERVERS,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "cn=3Dtrader=2Co=3Ddesk",
        "sasl_plain_password": "a=b",
    }


def test_msk_iam_uses_amazons_login_module_and_no_secret() -> None:
    kafka = Kafka(SERVERS, auth="msk_iam", tls=True)
    assert java_properties(kafka, None) == {
        "bootstrap.servers": SERVERS,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    assert librdkafka_properties(kafka, None)["sasl.mechanism"] == "OAUTHBEARER"
    assert kafka_python_properties(kafka, None)["sasl_mechanism"] == "AWS_MSK_IAM"


def test_mtls_presents_the_client_certificate() -> None:
    kafka = Kafka(SERVERS, auth="mtls", tls=True, secret="env:KAFKA")
    secret = Redacted(certificate=CERTIFICATE, key=KEY)
    java, native = java_properties(kafka, secret), librdkafka_properties(kafka, secret)
    assert java["security.protocol"] == native["security.protocol"] == "SSL"
    assert java["ssl.keystore.type"] == "PEM"
    assert java["ssl.keystore.certificate.chain"] == native["ssl.certificate.pem"] == CERTIFICATE
    assert java["ssl.keystore.key"] == native["ssl.key.pem"] == KEY
    python = kafka_python_properties(kafka, secret)
    assert (python["security_protocol"], python["certificate"], python["key"]) == ("SSL", CERTIFICATE, KEY)


def test_a_key_in_a_form_that_kafka_cannot_read_is_refused_with_the_command_that_converts_it() -> None:
    kafka = Kafka(SERVERS, auth="mtls", tls=True, secret="env:KAFKA")
    secret = Redacted(certificate=CERTIFICATE, key=KEY.replace("PRIVATE", "RSA PRIVATE"))
    with pytest.raises(ConfigError, match="PKCS#8") as caught:
        java_properties(kafka, secret)
    assert "openssl pkcs8 -topk8" in str(caught.value.fix)


def test_the_authorities_travel_inline(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(CERTIFICATE)
    kafka = Kafka(SERVERS, auth="tls", tls=True, ca_file=str(file))
    assert java_properties(kafka, None) == {
        "bootstrap.servers": SERVERS,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
    }
    assert librdkafka_properties(kafka, None)["ssl.ca.pem"] == CERTIFICATE
    assert kafka_python_properties(kafka, None)["authorities"] == CERTIFICATE


@pytest.mark.parametrize("content", [None, b"\xff", b"no certificate"])
def test_a_file_of_authorities_that_is_none_is_refused(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        java_properties(Kafka(SERVERS, auth="tls", tls=True, ca_file=str(file)), None)


@pytest.mark.parametrize("secret", [None, Redacted(username="trader")])
def test_missing_credentials_are_named(secret: Redacted | None) -> None:
    kafka = Kafka(SERVERS, auth="sasl_plain", tls=True, secret="env:KAFKA")
    with pytest.raises(ConfigError, match="secret"):
        librdkafka_properties(kafka, secret)


def test_properties_do_not_show_their_values() -> None:
    kafka = Kafka(SERVERS, auth="sasl_plain", tls=True, secret="env:KAFKA")
    for dialect in (java_properties, librdkafka_properties, kafka_python_properties):
        properties = dialect(kafka, SECRET)
        assert "trader" not in repr(properties)
        assert "a" + '"' not in repr(properties)
