"""What of `cdk diff` a person sees before a deploy."""

from __future__ import annotations

from cli.run.deploy import stack_changes

SAID = """\
[WARNING] aws-cdk-lib.Stack#addDependency is deprecated, and will be removed in the next major release.
Stack trading-lake (aws://000000000000/eu-north-1)
IAM Statement Changes
┌───┬────────────────┬────────┬──────────────────────────┬──────────────────────────────┬───────────┐
│   │ Resource       │ Effect │ Action                   │ Principal                    │ Condition │
├───┼────────────────┼────────┼──────────────────────────┼──────────────────────────────┼───────────┤
│ + │ arn:aws:s3:::a │ Allow  │ s3:GetBucketNotification │ AWS:${Storage/Function/Role} │           │
│   │ arn:aws:s3:::b │        │ s3:PutBucketNotification │                              │           │
├───┼────────────────┼────────┼──────────────────────────┼──────────────────────────────┼───────────┤
│ - │ *              │ Deny   │ sns:Publish              │ *                            │           │
└───┴────────────────┴────────┴──────────────────────────┴──────────────────────────────┴───────────┘
(NOTE: There may be security-related changes not in this list.)
Resources
[~] AWS::IAM::Role Storage/Function/Role StorageFunctionRole01C02847
 └─ [~] Policies
     └─ @@ -35,6 +35,32 @@
        [+]     "s3:GetBucketNotification",
[~] Custom::CalveLake Storage/Lake StorageLake2A0A3CE4 may be replaced
 └─ [~] ServiceToken (may cause replacement)
[-] AWS::SQS::Queue Old/Queue OldQueue123 destroy
Outputs
[+] Output Bucket Bucket: {"Value":"x"}
Stack trading-keys (aws://000000000000/eu-north-1)
There were no differences
Stack trading-exports (aws://000000000000/eu-north-1)
│ + │ *              │ Allow  │ xray:PutTraceSegments    │ AWS:${Writer/Export/Role}    │           │
[+] AWS::Lambda::Function Writer/Export/Function WriterExportFunction2FE260AD
✨  Number of stacks with differences: 2
"""


def test_each_change_of_a_stack_is_named_and_a_new_stack_is_counted() -> None:
    lines = [line for each in stack_changes(SAID.splitlines()) for line in each.branch().lines()]
    assert lines == [
        "~ trading-lake  3 resources, 2 rights",
        "~ trading-lake  ~  AWS::IAM::Role Storage/Function/Role",
        "~ trading-lake  ~  Custom::CalveLake Storage/Lake may be replaced",
        "~ trading-lake  -  AWS::SQS::Queue Old/Queue destroy",
        "~ trading-lake  +  right: Allow s3:GetBucketNotification, s3:PutBucketNotification"
        " on arn:aws:s3:::a, arn:aws:s3:::b for AWS:${Storage/Function/Role}",
        "~ trading-lake  -  right: Deny sns:Publish on * for *",
        "+ trading-exports  1 resources, 1 rights",
    ]
