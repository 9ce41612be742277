"""ARNs of what is named by its user, and so known before anything is made."""

from __future__ import annotations

from aws_cdk import Aws


def arn(service: str, resource: str, *, region: str = Aws.REGION) -> str:
    """An ARN in the stack's own account, and in its region unless another is named."""
    return f"arn:{Aws.PARTITION}:{service}:{region}:{Aws.ACCOUNT_ID}:{resource}"


def bucket_arn(bucket: str) -> str:
    return f"arn:{Aws.PARTITION}:s3:::{bucket}"


def catalog_arns(database: str) -> list[str]:
    """The catalog, one database and its tables: Glue checks all three."""
    return [arn("glue", "catalog"), arn("glue", f"database/{database}"), arn("glue", f"table/{database}/*")]


def secret_id(reference: str) -> str:
    """The name or ARN that an `aws:` reference holds."""
    return reference.removeprefix("aws:")


def secret_arn(reference: str) -> str | None:
    """The ARN of an `aws:` reference; a name's ARN ends in six characters of AWS's own. None for other references."""
    kind, _, name = reference.partition(":")
    if kind != "aws":
        return None
    return name if name.startswith("arn:") else arn("secretsmanager", f"secret:{name}-??????")
