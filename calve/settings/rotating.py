"""The shape of `rotate`: how the keys in a secret are changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from calve.names import MSK_PREFIX, of_msk
from calve.settings import fields
from calve.settings.problems import Problem
from calve.settings.section import Section

KEYS_TO_RETAIN = 2


class RotateSection(Section):
    """How the keys in a secret are changed, by a function that AWS Secrets Manager invokes; see docs/keys.md."""

    after_days: int = Field(default=30, ge=1, le=1000)
    """Days from one change to the next. Default: `30`"""
    admin_secret: fields.Secret | None = None
    """Secret of who may change them: with `sasl_scram` a user that may alter the cluster, with Confluent Cloud a Cloud API key.
    Default: nobody, as MSK reads the passwords of its users out of their secrets"""
    keys_to_retain: int | None = Field(default=None, ge=2, le=10)
    """Confluent Cloud: how many of the newest API keys stay valid, the one in use among them. Default: `2`"""


def rotation_problems(
    rotate: RotateSection | None, secrets: Mapping[str, str | None], *, cloud: bool
) -> Iterator[Problem]:
    """What a rotation cannot be. `secrets`: those that it changes, by their key; `cloud`: they hold keys of Confluent Cloud."""
    if rotate is None:
        return
    in_aws = "use aws:SECRET_ID: AWS Secrets Manager changes it"
    for key, reference in secrets.items():
        if reference and not reference.startswith("aws:"):
            yield Problem((key,), "cannot be changed where it is", in_aws)
    admin = ("rotate", "admin_secret")
    if rotate.admin_secret is None:
        msk = not cloud and all(of_msk(each) for each in secrets.values() if each)
        if not msk:
            who = "a Cloud API key" if cloud else "a user that may alter users and ACLs"
            reason = (
                "is missing" if cloud else f"is missing: only secrets of MSK, {MSK_PREFIX}..., do without one"
            )
            yield Problem(admin, reason, f"add `admin_secret: aws:SECRET_ID`, with {who}")
    elif not rotate.admin_secret.startswith("aws:"):
        yield Problem(admin, "cannot be read by the function", "use aws:SECRET_ID")
    if not cloud and rotate.keys_to_retain is not None:
        yield Problem(
            ("rotate", "keys_to_retain"), "has no use with sasl_scram: two users take turns", "remove it"
        )
