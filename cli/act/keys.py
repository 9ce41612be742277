"""`calve keys`: how old the secrets of a deployment are, and when they change. No secret is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from calve.config.deployment import Deployment
from calve.config.job import Registry
from calve.config.publishing import Publish
from cli.account import Account, resources
from cli.config import Common, load_target
from cli.console import ago
from cli.lake import aws_errors

State = Literal["ok", "by hand", "overdue", "unfinished", "absent", "elsewhere"]


def keys(*, given: Common) -> None:
    """Show how old the secrets of the deployment are, never a value.

    With what each is for, its last and its next change.

    Example:
      calve keys --env prod
    """
    console, now = given.console, datetime.now(UTC)
    deployment, embedded = load_target(given.config, given.env)
    account = Account.of(embedded, deployment.region)
    account.id()  # raises the fault of the credentials, with its fix
    client = account.client("secretsmanager")
    references = [*named(deployment), *_made(deployment, account)]
    with aws_errors("AWS Secrets Manager"):
        found = [key_age(client, use, reference, now) for use, reference in references]
    lines = [
        {
            "for": each.use,
            "secret": each.secret,
            "state": each.state,
            "age": ago(each.created, now).removesuffix(" ago"),
            "tested": ago(each.rotated, now),
            "next": ago(each.next, now),
        }
        for each in found
    ]
    console.table("keys", lines)
    if not found:
        console.say("no secrets: the configuration names none, and its stacks have made none")
    console.document({"keys": [asdict(each) for each in found]})


@dataclass(frozen=True, slots=True)
class KeyAge:
    """A secret and its use.

    state: `by hand`: nothing rotates it; `unfinished`: a rotation began and its version is not in use yet; `elsewhere`: it is not
    in AWS. created: when the version in use was made. rotated: when a version was last tested and brought into use.
    """

    use: str
    secret: str
    state: State
    created: datetime | None = None
    rotated: datetime | None = None
    next: datetime | None = None


def named(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Use and reference of each secret of a configuration. A secret with several uses has several lines."""
    job = deployment.jobs[0].settings
    uses: list[tuple[str, str | None]] = [
        ("kafka", job.kafka.secret),
        ("kafka, emit", job.kafka.emit_secret),
        ("masking", job.masking),
        *((f"changes {each.of}", each.admin) for each in deployment.rotations),
    ]
    if isinstance(job.registry, Registry):
        uses.append(("registry", job.registry.secret))
        uses.append(("registry, certificate", job.registry.client_certificate))
    publish = deployment.publish or Publish(())
    if snowflake := publish.snowflake:
        uses.append(("snowflake, deploys", snowflake.secret))
        uses.append(("snowflake, catalog", snowflake.open_catalog.secret if snowflake.open_catalog else None))
    if publish.openlineage:
        uses.append(("openlineage", publish.openlineage.secret))
    if rest := publish.iceberg_rest:
        uses.append(("iceberg_rest", rest.secret))
        uses.append(("iceberg_rest, deploys", rest.bootstrap.secret if rest.bootstrap else None))
    return ((use, reference) for use, reference in uses if reference)


def _made(deployment: Deployment, account: Account) -> Iterator[tuple[str, str]]:
    """Use and reference of the secrets that the stacks made, recognised by how their logical ids begin."""
    stacks: dict[str, dict[str, str]] = {}
    if deployment.public_links:
        stacks["exports"] = {"": "links"}
    if deployment.publish:
        stacks["publish"] = {"Snowflake": "snowflake", "IcebergRest": "iceberg_rest"}
    for stack, uses in stacks.items():
        for each in resources(account, f"{deployment.name}-{stack}"):
            if each.type == "AWS::SecretsManager::Secret":
                use = next(use for begin, use in uses.items() if each.logical.startswith(begin))
                yield use, f"aws:{each.id}"


def key_age(client: Any, use: str, reference: str, now: datetime) -> KeyAge:
    """The age of one secret; `client` is Secrets Manager's."""
    kind, _, secret = reference.partition(":")
    if kind != "aws":
        return KeyAge(use, reference, "elsewhere")
    name = secret.rpartition(":secret:")[2]
    try:
        described = client.describe_secret(SecretId=secret)
    except client.exceptions.ResourceNotFoundException:
        return KeyAge(use, name, "absent")
    staged = client.list_secret_version_ids(SecretId=secret, MaxResults=100)["Versions"]
    created = next((each["CreatedDate"] for each in staged if "AWSCURRENT" in each["VersionStages"]), None)
    rotates = described.get("RotationEnabled")
    following = _utc(described.get("NextRotationDate")) if rotates else None
    stages = described.get("VersionIdsToStages", {}).values()
    state: State = "ok" if rotates else "by hand"
    if any("AWSPENDING" in each and "AWSCURRENT" not in each for each in stages):
        state = "unfinished"
    elif following and following < now:
        state = "overdue"
    return KeyAge(use, name, state, _utc(created), _utc(described.get("LastRotatedDate")), following)


def _utc(moment: datetime | None) -> datetime | None:
    return moment.astimezone(UTC) if moment else None
