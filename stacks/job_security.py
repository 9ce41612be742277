"""How jobs encrypt what they write outside their tables: the security configuration of all jobs."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, aws_glue, aws_logs
from constructs import Construct

from stacks.lake import LakeStack
from stacks.roles import acknowledge


class JobSecurity(Construct):
    """A security configuration with the lake's key.

    CloudWatch Logs must stand in the key's policy, and an imported key's is not ours to change: AWS's own key then encrypts logs.
    """

    def __init__(self, scope: Construct, id: str, *, name: str, lake: LakeStack) -> None:
        super().__init__(scope, id)
        types = aws_glue.CfnSecurityConfiguration
        own, key = lake.key_made, lake.key_arn
        self._key = key
        self.log_key = key if own else None
        self.name = name
        # Not the L2: it keeps its resource, under a fixed name, when the stack is destroyed, and the next deploy fails.
        self.configuration = types(
            self,
            "Configuration",
            name=name,
            encryption_configuration=types.EncryptionConfigurationProperty(
                s3_encryptions=[
                    types.S3EncryptionProperty(s3_encryption_mode="SSE-KMS", kms_key_arn=key)
                    if key
                    else types.S3EncryptionProperty(s3_encryption_mode="SSE-S3")
                ],
                cloud_watch_encryption=types.CloudWatchEncryptionProperty(
                    cloud_watch_encryption_mode="SSE-KMS" if own else "DISABLED", kms_key_arn=self.log_key
                ),
                job_bookmarks_encryption=types.JobBookmarksEncryptionProperty(
                    job_bookmarks_encryption_mode="CSE-KMS" if key else "DISABLED", kms_key_arn=key
                ),
            ),
        )

    def secure(self, job: aws_glue.CfnJob) -> None:
        """Have a job use the configuration."""
        job.security_configuration = self.name
        job.add_resource_dependency(self.configuration)
        if not self.log_key:
            acknowledge(
                job,
                {"GL1": "an imported key's policy is not ours to change; AWS's own key encrypts the logs"},
            )
        if not self._key:
            acknowledge(job, {"GL3": "the job uses no bookmarks: its position is in the tables"})

    def name_of_logs(self, prefix: str, role: str, stream: str) -> str:
        """The log group that Glue writes: a security configuration with a key for logs changes its name."""
        return f"{prefix}/{self.name}-role/{role}/{stream}" if self.log_key else f"{prefix}/{stream}"


def log_group(
    scope: Construct, id: str, security: JobSecurity, prefix: str, role: str, stream: str
) -> aws_logs.CfnLogGroup:
    """The log group of a job for one of its streams."""
    group = aws_logs.CfnLogGroup(
        scope,
        id,
        log_group_name=security.name_of_logs(prefix, role, stream),
        retention_in_days=90,
        kms_key_id=security.log_key,
    )
    group.apply_removal_policy(RemovalPolicy.DESTROY)
    return group
