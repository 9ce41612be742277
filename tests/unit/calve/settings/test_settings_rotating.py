"""`rotate`: which keys change, how often and by whom; what cannot be is refused, all of it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.config.deployment import KeyRotation
from calve.errors import ConfigError
from calve.settings import load_deployment

TABLES = "name: t\ntables: {a: {topic: t}}\n"
REGISTRY = "registry: {url: https://r}\n"


def rotations(folder: Path, auth: str, registry: str = REGISTRY) -> tuple[KeyRotation, ...]:
    file = folder / "calve.yaml"
    file.write_text(f"{TABLES}kafka: {{bootstrap_servers: b:1, auth: {{{auth}}}}}\n{registry}")
    return load_deployment(file).rotations


def refused(folder: Path, auth: str, registry: str = REGISTRY) -> str:
    with pytest.raises(ConfigError) as caught:
        rotations(folder, auth, registry)
    return str(caught.value)


def test_users_of_both_principals_take_turns(tmp_path: Path) -> None:
    auth = "type: sasl_scram, secret: aws:in, emit_secret: aws:out, rotate: {after_days: 7, admin_secret: aws:admin}"
    assert rotations(tmp_path, auth) == (
        KeyRotation("kafka", "aws:in", 7, "aws:admin"),
        KeyRotation("emit", "aws:out", 7, "aws:admin"),
    )


def test_keys_of_confluent_cloud_open_cluster_and_registry(tmp_path: Path) -> None:
    auth = "type: sasl_plain, secret: aws:in, rotate: {admin_secret: aws:cloud}"
    registry = (
        "registry: {url: https://r, secret: aws:r, rotate: {admin_secret: aws:cloud, keys_to_retain: 4}}\n"
    )
    assert rotations(tmp_path, auth, registry) == (
        KeyRotation("kafka", "aws:in", 30, "aws:cloud", 2),
        KeyRotation("registry", "aws:r", 30, "aws:cloud", 4),
    )


@pytest.mark.parametrize(
    "name", ["AmazonMSK_t", "arn:aws:secretsmanager:eu-west-1:1:secret:AmazonMSK_t-AbCdEf"]
)
def test_a_secret_of_msk_needs_nobody_who_changes_it(tmp_path: Path, name: str) -> None:
    auth = f"type: sasl_scram, secret: 'aws:{name}', rotate: {{}}"
    assert rotations(tmp_path, auth) == (KeyRotation("kafka", f"aws:{name}"),)


def test_without_rotate_nothing_changes(tmp_path: Path) -> None:
    assert rotations(tmp_path, "type: sasl_scram, secret: aws:in") == ()


@pytest.mark.parametrize(
    ("auth", "problem"),
    [
        ("type: msk_iam, rotate: {}", "kafka.auth.rotate  has no use with msk_iam"),
        ("type: mtls, secret: aws:x, emit_secret: aws:x", "kafka.auth.emit_secret  is the same as `secret`"),
        ("type: msk_iam, emit_secret: aws:x", "kafka.auth.emit_secret  has no use with msk_iam"),
        ("type: sasl_scram, secret: aws:in, rotate: {}", "rotate.admin_secret  is missing: only secrets of MSK"),
        ("type: sasl_plain, secret: aws:AmazonMSK_x, rotate: {}", "rotate.admin_secret  is missing. Add"),
        ("type: sasl_scram, secret: aws:in, rotate: {admin_secret: env:A}", "cannot be read by the function"),
        (
            "type: sasl_scram, secret: aws:in, rotate: {admin_secret: aws:a, keys_to_retain: 3}",
            "has no use with sasl_scram",
        ),
        ("type: sasl_plain, secret: aws:in, rotate: {admin_secret: aws:a, keys_to_retain: 1}", "keys_to_retain"),
        ("type: sasl_scram, secret: aws:in, rotate: {admin_secret: aws:a, after_days: 0}", "after_days"),
        ("type: sasl_scram, secret: aws:in, rotate: {after_day: 3}", 'after_day  is not a known key. Did you mean "after_days"?'),
    ],
)  # fmt: skip
def test_a_rotation_that_cannot_work_is_refused(tmp_path: Path, auth: str, problem: str) -> None:
    assert problem in refused(tmp_path, auth)


def test_all_that_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    auth = "type: sasl_scram, secret: 'file:k', emit_secret: env:E, rotate: {admin_secret: env:A, keys_to_retain: 2}"
    registry = "registry: {url: https://r, rotate: {admin_secret: aws:c}}\n"
    told = refused(tmp_path, auth, registry)
    assert told.count("cannot be rotated there") == 2
    for problem in (
        "cannot be read by the function",
        "has no use with sasl_scram",
        "has no use without basic",
    ):
        assert problem in told
