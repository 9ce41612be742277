"""Topics that mail people: AWS asks each to confirm once."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct


def mail_topic(scope: Construct, id: str, *, recipients: Sequence[str], title: str) -> aws_sns.Topic:
    """A topic with one subscription by mail per recipient; `title` is what a mail says it comes from."""
    topic = aws_sns.Topic(scope, id, display_name=title, enforce_ssl=True)
    for address in recipients:
        topic.add_subscription(subscriptions.EmailSubscription(address))
    return topic
