"""`kafka.auth` as properties of Kafka's clients: Java (Spark's sink), librdkafka and kafka-python."""

from __future__ import annotations

from pathlib import Path

from calve.config.job import Kafka
from calve.errors import ConfigError
from calve.secrets import Redacted, value_of

_PKCS8 = "-----BEGIN PRIVATE KEY-----"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


def java_properties(kafka: Kafka, secret: Redacted | None) -> Redacted:
    """Servers and security for Kafka's Java clients. Spark's sink takes each with the prefix `kafka.`.

    `secret`: the value of `kafka.secret`. Certificates are inline, so that executors need no file.
    The MSK IAM login module is `software.amazon.msk:aws-msk-iam-auth` on the class path.

    Raises:
        ConfigError: the secret lacks a value, or a certificate file cannot be read.
    """
    properties = _servers(kafka)
    match kafka.auth:
        case "sasl_plain":
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            properties |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": _jaas(module, kafka, secret)}
        case "sasl_scram":
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            properties |= {"sasl.mechanism": _scram(kafka), "sasl.jaas.config": _jaas(module, kafka, secret)}
        case "msk_iam":
            properties |= {
                "sasl.mechanism": "AWS_MSK_IAM",
                "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
                "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            }
        case "mtls":
            certificate, key = _client_certificate(kafka, secret)
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": certificate,
                "ssl.keystore.key": key,
            }
    if kafka.ca_file:
        properties |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _authorities(kafka.ca_file),
        }
    return properties


def librdkafka_properties(kafka: Kafka, secret: Redacted | None) -> Redacted:
    """The same for librdkafka (confluent-kafka).

    With MSK IAM the caller adds an `oauth_cb`: librdkafka has no IAM and takes the tokens as OAUTHBEARER.

    Raises:
        ConfigError: as `java_properties`.
    """
    properties = _servers(kafka)
    match kafka.auth:
        case "sasl_plain" | "sasl_scram":
            username, password = _credentials(kafka, secret)
            mechanism = "PLAIN" if kafka.auth == "sasl_plain" else _scram(kafka)
            properties |= {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
        case "msk_iam":
            properties |= {"sasl.mechanism": "OAUTHBEARER"}
        case "mtls":
            certificate, key = _client_certificate(kafka, secret)
            properties |= {"ssl.certificate.pem": certificate, "ssl.key.pem": key}
    if kafka.ca_file:
        properties |= {"ssl.ca.pem": _authorities(kafka.ca_file)}
    return properties


def kafka_python_properties(kafka: Kafka, secret: Redacted | None) -> Redacted:
    """The same for kafka-python. `authorities`, `certificate` and `key` are PEM, for an `ssl.SSLContext`.

    Raises:
        ConfigError: as `java_properties`.
    """
    properties = Redacted(
        {"bootstrap_servers": kafka.bootstrap_servers, "security_protocol": _protocol(kafka)}
    )
    match kafka.auth:
        case "sasl_plain" | "sasl_scram":
            username, password = _credentials(kafka, secret)
            plain = kafka.auth == "sasl_plain"
            properties |= {
                "sasl_mechanism": "PLAIN" if plain else _scram(kafka),
                "sasl_plain_username": username if plain else _scram_name(username),
                "sasl_plain_password": password,
            }
        case "msk_iam":
            properties |= {"sasl_mechanism": "AWS_MSK_IAM"}
        case "mtls":
            certificate, key = _client_certificate(kafka, secret)
            properties |= {"certificate": certificate, "key": key}
    if kafka.ca_file:
        properties |= {"authorities": _authorities(kafka.ca_file)}
    return properties


def _servers(kafka: Kafka) -> Redacted:
    return Redacted({"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": _protocol(kafka)})


def _protocol(kafka: Kafka) -> str:
    match kafka.auth:
        case "none":
            return "PLAINTEXT"
        case "tls" | "mtls":
            return "SSL"
        case "msk_iam":
            return "SASL_SSL"
        case "sasl_plain" | "sasl_scram":
            return "SASL_SSL" if kafka.tls else "SASL_PLAINTEXT"


def _scram(kafka: Kafka) -> str:
    return kafka.mechanism or "SCRAM-SHA-512"


def _scram_name(username: str) -> str:
    """A user name as in SCRAM messages (RFC 5802). The other clients escape names themselves."""
    return username.replace("=", "=3D").replace(",", "=2C")


def _jaas(module: str, kafka: Kafka, secret: Redacted | None) -> str:
    username, password = _credentials(kafka, secret)
    return f"{module} required username={jaas_text(username)} password={jaas_text(password)};"


def jaas_text(value: str) -> str:
    """A quoted text in a JAAS line, with the escapes of `java.io.StreamTokenizer`.

    Source: `JaasConfig` in kafka-clients.
    """
    return '"' + "".join(_ESCAPES.get(each, each) for each in value) + '"'


def _credentials(kafka: Kafka, secret: Redacted | None) -> tuple[str, str]:
    given, reference = _given(kafka, secret)
    return value_of(given, "username", reference), value_of(given, "password", reference)


def _client_certificate(kafka: Kafka, secret: Redacted | None) -> tuple[str, str]:
    given, reference = _given(kafka, secret)
    certificate, key = value_of(given, "certificate", reference), value_of(given, "key", reference)
    if _PKCS8 not in key:
        raise ConfigError(
            f'the "key" of the secret {reference} is not an unencrypted PKCS#8 key, the form that Kafka reads',
            fix="convert it: openssl pkcs8 -topk8 -nocrypt -in key.pem",
        )
    return certificate, key


def _given(kafka: Kafka, secret: Redacted | None) -> tuple[Redacted, str]:
    if secret is None or kafka.secret is None:
        raise ConfigError(f"kafka.auth {kafka.auth} needs a secret", fix="add `secret:` to kafka.auth")
    return secret, kafka.secret


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
