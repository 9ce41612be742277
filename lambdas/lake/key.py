"""The lake's key, found by its alias.

The role may change only keys with this deployment's tag. KMS sees the tags of a new key up to five minutes late, and refuses
until then. An alias that does not exist has no tags, so only the list of aliases says that it is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from calve.names import OWNER_TAG
from lambdas.aws import tolerating

TAGS_S = 360.0
POLL_S = 5.0


def key_of(kms: Any, alias: str) -> str | None:
    """The id of the alias's key; None if there is no such alias."""
    for page in kms.get_paginator("list_aliases").paginate():
        for each in page["Aliases"]:
            if each["AliasName"] == alias:
                return str(each["TargetKeyId"])
    return None


def keep_key(kms: Any, alias: str, deployment: str, policy: str, *, clock: Any = time) -> str:
    """Create or adopt the key, give it its policy and rotation; returns its ARN. A key that awaits deletion is kept."""
    key = key_of(kms, alias)
    if key is None:
        # Without the policy: KMS admits one only from callers who may change it, and that needs the tag.
        tags = [{"TagKey": OWNER_TAG, "TagValue": deployment}]
        key = str(kms.create_key(Description=f"Lake of {deployment}", Tags=tags)["KeyMetadata"]["KeyId"])
        kms.create_alias(AliasName=alias, TargetKeyId=key)
    return _persistently(lambda: _set(kms, key, policy), clock)


def _set(kms: Any, key: str, policy: str) -> str:
    found = kms.describe_key(KeyId=key)["KeyMetadata"]
    if found["KeyState"] == "PendingDeletion":
        kms.cancel_key_deletion(KeyId=key)
    if found["KeyState"] in {"PendingDeletion", "Disabled"}:
        kms.enable_key(KeyId=key)
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=policy)
    kms.enable_key_rotation(KeyId=key)
    return str(found["Arn"])


def _persistently(act: Callable[[], str], clock: Any) -> str:
    """Repeat a refused act until KMS must have seen the tags."""
    until = clock.monotonic() + TAGS_S
    while clock.monotonic() < until:
        with tolerating("AccessDeniedException"):
            return act()
        clock.sleep(POLL_S)
    return act()
