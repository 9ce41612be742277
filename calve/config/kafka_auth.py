"""`kafka.auth` as properties of Kafka's clients: Java (Spark's sink), librdkafka and kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from calve.config.job import Kafka
from calve.errors import ConfigError
from calve.secrets import Redacted, value_of

_PKCS8 = "-----BEGIN PRIVATE KEY-----"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
_MODULES = {
    "sasl_plain": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "sasl_scram": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROTOCOLS = {"none": "PLAINTEXT", "tls": "SSL", "mtls": "SSL", "msk_iam": "SASL_SSL"}

# What a connection needs -> its name in each client.
_JAVA = {
    "servers": "bootstrap.servers",
    "protocol": "security.protocol",
    "mechanism": "sasl.mechanism",
    "certificate": "ssl.keystore.certificate.chain",
    "key": "ssl.keystore.key",
    "authorities": "ssl.truststore.certificates",
}
_LIBRDKAFKA = {
    "servers": "bootstrap.servers",
    "protocol": "security.protocol",
    "mechanism": "sasl.mechanism",
    "username": "sasl.username",
    "password": "sasl.password",
    "certificate": "ssl.certificate.pem",
    "key": "ssl.key.pem",
    "authorities": "ssl.ca.pem",
}
_KAFKA_PYTHON = {
    "servers": "bootstrap_servers",
    "protocol": "security_protocol",
    "mechanism": "sasl_mechanism",
    "username": "sasl_plain_username",
    "password": "sasl_plain_password",
    "certificate": "certificate",
    "key": "key",
    "authorities": "authorities",
}


def java_properties(kafka: Kafka, secret: Redacted | None) -> Redacted:
    """Servers and security for Kafka's Java clients. Spark's sink takes each with the prefix `kafka.`.

    `secret`: the value of `kafka.secret`. Certificates are inline, so that executors need no file.
    The MSK IAM login module is `software.amazon.msk:aws-msk-iam-auth` on the class path.

    Raises ConfigError: the secret lacks a value, or a certificate file cannot be read.
    """
    facts = _facts(kafka, secret)
    properties = _named(facts, _JAVA)
    match kafka.auth:
        case "sasl_plain" | "sasl_scram":
            user = f"username={jaas_text(facts['username'])} password={jaas_text(facts['password'])}"
            properties |= {"sasl.jaas.config": f"{_MODULES[kafka.auth]} required {user};"}
        case "msk_iam":
            properties |= {
                "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
                "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            }
        case "mtls":
            properties |= {"ssl.keystore.type": "PEM"}
    if kafka.ca_file:
        properties |= {"ssl.truststore.type": "PEM"}
    return properties


def librdkafka_properties(kafka: Kafka, secret: Redacted | None) -> Redacted:
    """The same for librdkafka, which has no MSK IAM: the caller adds an `oauth_cb`, and tokens go as OAUTHBEARER."""
    facts = _facts(kafka, secret)
    if kafka.auth == "msk_iam":
        facts |= {"mechanism": "OAUTHBEARER"}
    return _named(facts, _LIBRDKAFKA)


def kafka_python_properties(kafka: Kafka, secret: Redacted | None) -> Redacted:
    """The same for kafka-python. `authorities`, `certificate` and `key` are PEM, for an `ssl.SSLContext`."""
    facts = _facts(kafka, secret)
    if (
        kafka.auth == "sasl_scram"
    ):  # as in SCRAM messages (RFC 5802); the other clients escape names themselves
        facts |= {"username": facts["username"].replace("=", "=3D").replace(",", "=2C")}
    return _named(facts, _KAFKA_PYTHON)


def _named(facts: Redacted, names: Mapping[str, str]) -> Redacted:
    return Redacted({names[each]: value for each, value in facts.items() if each in names})


def _facts(kafka: Kafka, secret: Redacted | None) -> Redacted:
    """What any client needs for the connection."""
    protocol = _PROTOCOLS.get(kafka.auth, "SASL_SSL" if kafka.tls else "SASL_PLAINTEXT")
    facts = Redacted({"servers": kafka.bootstrap_servers, "protocol": protocol})
    match kafka.auth:
        case "sasl_plain":
            facts |= {"mechanism": "PLAIN"} | _given(kafka, secret, "username", "password")
        case "sasl_scram":
            facts |= {"mechanism": kafka.mechanism or "SCRAM-SHA-512"}
            facts |= _given(kafka, secret, "username", "password")
        case "msk_iam":
            facts |= {"mechanism": "AWS_MSK_IAM"}
        case "mtls":
            facts |= _given(kafka, secret, "certificate", "key")
            if _PKCS8 not in facts["key"]:
                raise ConfigError(
                    f'the "key" of the secret {kafka.secret} is not an unencrypted PKCS#8 key, the form that Kafka reads',
                    fix="convert it: openssl pkcs8 -topk8 -nocrypt -in key.pem",
                )
    return facts | ({"authorities": _authorities(kafka.ca_file)} if kafka.ca_file else {})


def _given(kafka: Kafka, secret: Redacted | None, *keys: str) -> Redacted:
    if secret is None or kafka.secret is None:
        raise ConfigError(f"kafka.auth {kafka.auth} needs a secret", fix="add `secret:` to kafka.auth")
    return Redacted({key: value_of(secret, key, kafka.secret) for key in keys})


def jaas_text(value: str) -> str:
    """A quoted text in a JAAS line, with the escapes of `java.io.StreamTokenizer` (`JaasConfig` in kafka-clients)."""
    return '"' + "".join(_ESCAPES.get(each, each) for each in value) + '"'


def _authorities(file: str) -> str:
    try:
        text = Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kafka.auth.ca_file {file} cannot be read: {type(error).__name__}") from None
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise ConfigError(
            f"kafka.auth.ca_file {file} holds no certificate", fix="name a PEM file of certificates"
        )
    return text
