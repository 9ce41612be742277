"""A certificate authority and a broker certificate for loopback, made anew with every stack."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = datetime.timedelta(days=365)


def write_certificates(folder: Path) -> tuple[Path, Path]:
    """Write the authority's certificate and the broker's PEM store (key, chain); return their paths."""
    authority_key, broker_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "calve embedded authority")])
    broker_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    authority = (
        _certificate(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
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
        .not_valid_after(now + VALID)
    )
