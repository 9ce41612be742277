"""Two policies for the people who run a deployment. Neither shows a row.

`read` answers questions: states, freshness, files, logs. `act` sends requests to a running job, in a property of the table, and
starts and stops runs. To see rows, or dead letters, add one of the readers' policies of `stacks/stateful/lake.py`.
"""

from __future__ import annotations

from aws_cdk import aws_iam
from constructs import Construct

from calve.config.deployment import Deployment
from stacks.base.roles import Lake, allow, arn, dashboard_name, deny, policy_for_people, start_arn

TABLES = "all tables of the lake"
PARTS = ("lake", "kafka", "ingest", "keys", "exports", "publish", "maintenance", "monitoring")


def operators_policies(
    scope: Construct, deployment: Deployment, lake: Lake
) -> tuple[aws_iam.ManagedPolicy, aws_iam.ManagedPolicy]:
    """Policies to look and to act; to act needs both. `scope`: their own."""
    name = deployment.name
    jobs = [
        arn("glue", f"job/{name}-{job.settings.job}{beside}")
        for job in deployment.jobs
        for beside in ("", "-maintenance")
    ]
    # StartJobRun accepts another script, so only our function may start a run: it passes no arguments.
    as_deployed = deny(["glue:StartJobRun"], [arn("glue", f"job/{name}-*")])
    groups = [f"/calve/{name}/", *(f"{name}-{part}-" for part in PARTS)]
    looking = [
        # The catalog, the jobs' reports, and metadata: schemas, snapshots, ledgers, file sizes.
        *lake.finding(["glue:GetDatabase", "glue:GetTable", "glue:GetTables"], because=TABLES),
        allow(
            ["s3:GetObject"],
            [*lake.metadata(), lake.status("*")],
            because="the metadata of all tables of the lake, and what each job says of its tables; no record in it",
        ),
        *lake.key("kms:Decrypt", through_s3=True),
        # The deployed stacks, and how far each published table is.
        allow(
            ["cloudformation:DescribeStacks", "cloudformation:ListStackResources"],
            [arn("cloudformation", f"stack/{name}-{part}/*") for part in PARTS],
            because="a stack's ARN ends in an id of CloudFormation's own",
        ),
        allow(
            ["dynamodb:Scan"],
            [arn("dynamodb", f"table/{name}-publish-*")],
            because="CloudFormation names the table of the states",
        ),
        # The runs of the jobs; logs, metrics and alarms.
        allow(
            ["glue:GetJob", "glue:GetJobRun", "glue:GetJobRuns"],
            [arn("glue", f"job/{name}-*")],
            because="the names of many jobs exceed a policy's size",
        ),
        allow(
            ["lambda:InvokeFunction"],
            [arn("lambda", f"function:{name}-ingest-Doctor*")],
            because="CloudFormation names the function, which says what keeps the jobs from working",
        ),
        allow(
            ["logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents"],
            [arn("logs", f"log-group:{group}*") for group in groups],
            because="the log groups of the jobs, and those of the functions, which CloudFormation names",
        ),
        allow(["cloudwatch:GetMetricData", "cloudwatch:ListMetrics"], ["*"], because="a metric has no ARN"),
        allow(
            ["cloudwatch:GetDashboard"], [arn("cloudwatch", f"dashboard/{dashboard_name(name)}", region="")]
        ),
        allow(
            ["cloudwatch:DescribeAlarms"],
            [arn("cloudwatch", f"alarm:{name}-*")],
            because="the alarms of the deployment",
        ),
        # The age of the stacks' secrets, not their values.
        allow(
            ["secretsmanager:DescribeSecret", "secretsmanager:ListSecretVersionIds"],
            [arn("secretsmanager", "secret:*")],
            {"StringEquals": {"aws:ResourceTag/calve:deployment": name}},
            because="AWS ends a secret's name with characters of its own; the tag is a condition",
        ),
        as_deployed,
    ]
    acting = [
        # S3 Tables has no right to change a table's properties without its rows.
        *([] if lake.catalog else lake.changing(["glue:UpdateTable"], because=TABLES)),
        allow(["s3:PutObject"], lake.metadata([".metadata.json"]), because=f"the metadata of {TABLES}"),
        allow(["glue:BatchStopJobRun"], jobs),
        allow(["lambda:InvokeFunction"], [start_arn(name)]),
        as_deployed,
        *lake.key("kms:GenerateDataKey", through_s3=True),
    ]
    sees = f"Sees how {name} fares, but no row"
    acts = f"Asks the jobs of {name}, and runs them"
    read = policy_for_people(scope, "Read", f"{name}-operators-read", sees, looking)
    return read, policy_for_people(scope, "Act", f"{name}-operators", acts, acting)
