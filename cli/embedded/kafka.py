"""The Kafka broker: one KRaft process with a plain, a TLS and a SASL_SSL listener, and certificates for loopback."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from calve.errors import Fatal
from cli.embedded.processes import HOST, State
from cli.embedded.runtimes import Java

JVM = ["-Xms96m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
CERTIFICATES_LAST = datetime.timedelta(days=365)

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{kafka_controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners={clients},CONTROLLER://{host}:{kafka_controller}
advertised.listeners={clients}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={store}
ssl.truststore.type=PEM
ssl.truststore.location={store}
ssl.client.auth=requested
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={security}.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
# Clients of the plain and TLS listeners, and the stack's own user; ACLs decide for others.
super.users=User:ANONYMOUS;User:{user}
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
# Retention and compaction within seconds of a topic's own limits.
log.initial.task.delay.ms=500
log.retention.check.interval.ms=1000
log.retention.ms=-1
log.segment.delete.delay.ms=1000
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=8388608
"""


def new_cluster_id() -> str:
    """Return a new cluster id in base64url. It does not begin with `-`: the option parser would take it for an option."""
    while (name := base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")).startswith("-"):
        pass
    return name


def configuration(state: State, *, data: Path, store: Path) -> str:
    listeners = {"PLAINTEXT": "kafka", "SSL": "kafka_ssl", "SASL_SSL": "kafka_sasl"}
    return PROPERTIES.format(
        host=HOST,
        clients=",".join(f"{name}://{HOST}:{state.ports[port]}" for name, port in listeners.items()),
        kafka_controller=state.ports["kafka_controller"],
        security="org.apache.kafka.common.security",
        store=store,
        user=state.sasl_user,
        password=state.sasl_password,
        data=data,
    )


def write_certificates(folder: Path) -> tuple[Path, Path]:
    """Make new certificates of an authority and a broker; return the authority's file and the broker's PEM store (key, chain)."""
    authority_key, broker_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "calve embedded authority")])
    broker_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    authority = (
        _certificate(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    broker = (
        _certificate(broker_name, authority_name, broker_key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    authority_file, store = folder / "ca.pem", folder / "broker.pem"
    authority_file.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    store.touch(mode=0o600)
    store.write_bytes(
        broker_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + broker.public_bytes(serialization.Encoding.PEM)
        + authority.public_bytes(serialization.Encoding.PEM)
    )
    return authority_file, store


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + CERTIFICATES_LAST)
    )


def format_storage(java: Java, *, jars: Path, properties: Path, cluster_id: str) -> None:
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
    done = subprocess.run(
        [*program(java, jars), *tool],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Fatal(f"Kafka's storage could not be formatted: {' '.join(last)}", fix="calve doctor")


def answers(bootstrap_servers: str, cluster_id: str, *, timeout_s: float = 2.0) -> bool:
    """Tell whether the broker of exactly this cluster serves requests."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "socket.timeout.ms": 2000})
    try:
        metadata = admin.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return bool(metadata.brokers) and metadata.cluster_id == cluster_id


def add_scram_user(state: State) -> None:
    """Give the user its SCRAM credentials through the broker: a command line must not hold a password."""
    from confluent_kafka import admin

    broker = admin.AdminClient({"bootstrap.servers": f"{HOST}:{state.ports['kafka']}", "log_level": 0})
    info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, 4096)
    change = admin.UserScramCredentialUpsertion(state.sasl_user, info, state.sasl_password.encode())
    for answer in broker.alter_user_scram_credentials([change]).values():
        answer.result(timeout=20)


def program(java: Java, jars: Path) -> list[str]:
    """Java with Kafka's classes; the class to run and its arguments follow."""
    return [java.executable, *JVM, "-cp", f"{jars}/*"]
