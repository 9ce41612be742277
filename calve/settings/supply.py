"""What must be named in calve.yaml, by a command or by a deploy, unless the stack that runs supplies it.

Like `relations`, these work on the values as written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calve.settings.problems import Problem
from calve.settings.schemas import asks_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from calve.settings.problems import KeyPath
    from calve.settings.resolving import StackDefaults

_KAFKA = "add `kafka: {bootstrap_servers: host:port}`"
_REGISTRY = "add `registry: {url: https://host}`"
_WRITTEN_BUCKET = (
    "name it in an overlay for --env that is never deployed, since a deploy takes a named bucket for an imported one: "
    "`lake: {bucket: NAME}`"
)
_LONGEST_REGION = len("ap-southeast-1")
_BUCKET_NAME = 63


def needed_by_a_command(values: Mapping[str, Any], stack: StackDefaults) -> Iterator[Problem]:
    """Parts that neither calve.yaml nor the stack names."""
    embedded = "or start the embedded stack: `calve up`"
    missing: list[tuple[KeyPath, bool, str]] = [
        (("kafka",), values.get("kafka") is None and stack.kafka is None, _KAFKA),
        (("registry",), _lacks_registry(values, stack), _REGISTRY),
        (("lake", "bucket"), not _bucket(values) and stack.warehouse is None, _WRITTEN_BUCKET),
    ]
    for path, absent, fix in missing:
        if absent:
            yield Problem(path, "is missing", f"{fix}, {embedded}")
    if creates_cluster(values):
        yield Problem(
            ("kafka", "msk", "create"),
            "leaves open where the brokers are, which only a deploy knows",
            "name them in an overlay: `kafka: {msk: null, bootstrap_servers: ..., auth: {type: msk_iam}}`",
        )


def needed_by_a_deploy(values: Mapping[str, Any], stack: StackDefaults) -> Iterator[Problem]:
    """Parts that a deploy cannot make, and what only a laptop can use."""
    if values.get("kafka") is None and stack.kafka is None:
        yield Problem(("kafka",), "is missing", f"{_KAFKA}, or `kafka: {{msk: {{create: serverless}}}}`")
    if _lacks_registry(values, stack):
        yield Problem(("registry",), "is missing", _REGISTRY)
    secrets = (
        ("kafka", "auth", "secret"),
        ("kafka", "auth", "emit_secret"),
        ("registry", "secret"),
        ("registry", "client_certificate"),
        ("masking", "secret"),
        ("publish", "iceberg_rest", "secret"),
        ("publish", "iceberg_rest", "bootstrap", "secret"),
    )
    for path in secrets:
        secret = _at(values, path)
        if isinstance(secret, str) and secret.startswith(("env:", "file:")):
            yield Problem(path, "cannot be read where the deployed job runs", "keep it in AWS: aws:SECRET_ID")
    yield from _bucket_name(values)


def creates_cluster(values: Mapping[str, Any]) -> bool:
    """Whether the stack makes the Kafka cluster."""
    return _at(values, ("kafka", "msk", "create")) is not None


def _lacks_registry(values: Mapping[str, Any], stack: StackDefaults) -> bool:
    return values.get("registry") is None and stack.registry is None and asks_registry(values)


def _bucket_name(values: Mapping[str, Any]) -> Iterator[Problem]:
    """The stack names its bucket NAME-lake-ACCOUNT-REGION."""
    name, region = values.get("name"), _at(values, ("lake", "region"))
    account = "0" * 12
    rest = len(f"-lake-{account}-") + (len(region) if isinstance(region, str) else _LONGEST_REGION)
    if isinstance(name, str) and not _bucket(values) and len(name) + rest > _BUCKET_NAME:
        reason = f"is too long for the name of the bucket that the stack makes: {len(name)} characters"
        yield Problem(("name",), reason, f"use at most {_BUCKET_NAME - rest}, or name `lake.bucket`")


def _bucket(values: Mapping[str, Any]) -> bool:
    return _at(values, ("lake", "bucket")) is not None


def _at(values: Mapping[str, Any], path: KeyPath) -> Any:
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
