"""Of every role and policy of all deployments: none but a deploy's can have a job run other code, no operator's shows a row."""

import copy
import json

import pytest

from tests.synth.deployments import IMPORTED, MADE, MSK, REMOVABLE, REST_HOME, S3_TABLES_HOME, SHOP
from tests.synth.evaluator import PSEUDO, plain, principals

DEPLOYMENTS = {each.name: each for each in (MADE, MSK, IMPORTED, SHOP, REMOVABLE, REST_HOME, S3_TABLES_HOME)}
STARTERS = {"ingest/ControlHandOverRole", "ingest/ControlWatchdogRole", "ingest/ControlStartRole"}
"""Functions that pass no argument but the generation that the definition has: tests/unit/lambdas/job_control."""
OPERATORS = ("lake/OperatorsRead", "lake/OperatorsAct")
OF_METADATA = (
    "ingest/DoctorExamineRole",
    *(f"publish/IcebergRest{each}Role" for each in ("Deploy", "Follow", "Reconcile")),
)
"""Functions that read metadata and no row."""

RUNS_CODE = {
    *("glue:CreateJob", "glue:UpdateJob", "glue:DeleteJob", "glue:UpdateJobFromSourceControl"),
    *("glue:CreateTrigger", "glue:UpdateTrigger", "glue:StartTrigger", "glue:StartBlueprintRun"),
    *("glue:CreateWorkflow", "glue:UpdateWorkflow", "glue:StartWorkflowRun", "glue:PutResourcePolicy"),
    *("glue:CreateSession", "glue:RunStatement", "glue:CreateDevEndpoint", "glue:UpdateDevEndpoint"),
    *("lambda:CreateFunction", "lambda:UpdateFunctionCode", "lambda:UpdateFunctionConfiguration"),
    *("lambda:AddPermission", "lambda:PublishLayerVersion", "lambda:CreateEventSourceMapping"),
    *("cloudformation:CreateStack", "cloudformation:UpdateStack", "cloudformation:CreateChangeSet"),
    *("cloudformation:ExecuteChangeSet", "scheduler:UpdateSchedule", "events:PutTargets"),
    *("iam:CreateRole", "iam:CreatePolicyVersion", "iam:SetDefaultPolicyVersion", "iam:AttachUserPolicy"),
}
"""By which something could be made to run in the place of a job or a function, whatever the resource."""
TAKES_ROLE = {
    *("iam:PassRole", "sts:AssumeRole", "iam:UpdateAssumeRolePolicy", "iam:PutRolePolicy"),
    *("iam:AttachRolePolicy", "iam:DeleteRolePermissionsBoundary"),
}
WRITES_OBJECT = {
    *("s3:PutObject", "s3:DeleteObject", "s3:PutObjectAcl", "s3:RestoreObject", "s3:ReplicateObject"),
    *("s3:DeleteObjectVersion", "s3:PutObjectVersionAcl", "s3:BypassGovernanceRetention"),
}
OPENS_BUCKET = {"s3:PutBucketPolicy", "s3:PutReplicationConfiguration", "s3:PutAccessPointPolicy"}
LETS_SEE = {
    *("athena:StartQueryExecution", "athena:GetQueryResults", "athena:GetQueryResultsStream"),
    *("lakeformation:GetDataAccess", "lakeformation:GrantPermissions", "lakeformation:PutDataLakeSettings"),
    *("lakeformation:GetTemporaryGlueTableCredentials", "lakeformation:StartQueryPlanning"),
    *("lakeformation:AddLFTagsToResource", "lakeformation:GetWorkUnitResults"),
    *("glue:GetColumnStatisticsForTable", "glue:StartColumnStatisticsTaskRun"),
    *("secretsmanager:GetSecretValue", "kafka-cluster:ReadData", "sts:AssumeRole", "iam:PassRole"),
    *("kms:CreateGrant", "kms:PutKeyPolicy", "kms:ReEncryptFrom", "scheduler:CreateSchedule"),
    *("dynamodb:PutItem", "dynamodb:UpdateItem", "s3:PutBucketPolicy", "s3:CreateAccessPoint"),
}
"""By which a row could be had without reading its object."""

CALLED = ("lambdas.job_control.handler.start", "lambdas.doctor.handler.handle")
"""Functions that operators call. Neither answers with a row: tests/integration/deploy/test_doctor.py."""
_S3 = {"Fn::Join": ["", ["s3.", {"Ref": "AWS::Region"}, ".", {"Ref": "AWS::URLSuffix"}]]}
THROUGH_S3 = {"StringEquals": {"kms:ViaService": _S3}}


def of_type(templates, kind):
    for stack, template in templates.items():
        for resource in template["Resources"].values():
            if resource["Type"] == kind:
                yield stack, resource["Properties"]


def code_of(templates):
    """The ARNs of all objects that a job or a function reads as code, or as its settings."""
    uris: list[str] = []
    for stack, job in of_type(templates, "AWS::Glue::Job"):
        arguments = job["DefaultArguments"]
        assert not {"--scriptLocation", "--additional-python-modules", "--class"} & set(arguments)
        named = [arguments.get(name, "") for name in ("--extra-py-files", "--extra-jars", "--extra-files")]
        for each in (job["Command"]["ScriptLocation"], *named):
            uris += filter(None, plain(each, stack, templates).split(","))
    for stack, function in of_type(templates, "AWS::Lambda::Function"):
        code = function["Code"]
        uris.append(
            "/".join(("s3:/", *(plain(code[part], stack, templates) for part in ("S3Bucket", "S3Key"))))
        )
    assert all(uri.startswith("s3://cdk-") for uri in uris)
    return {f"arn:aws:s3:::{uri.removeprefix('s3://')}" for uri in uris}


def functions_of(templates):
    """The ARN of each function, and its handler."""
    for stack, template in templates.items():
        for id_, resource in template["Resources"].items():
            if resource["Type"] == "AWS::Lambda::Function":
                yield plain({"Fn::GetAtt": [id_, "Arn"]}, stack, templates), resource["Properties"]["Handler"]


def arn(service, resource):
    return f"arn:aws:{service}:{PSEUDO['AWS::Region']}:{PSEUDO['AWS::AccountId']}:{resource}"


def running_other_code(templates):
    """Who could make a job run what its definition does not name."""
    everybody = list(principals(templates))
    jobs = {arn("glue", f"job/{job['Name']}"): stack for stack, job in of_type(templates, "AWS::Glue::Job")}
    code = code_of(templates)
    buckets = {each.partition("/")[0] for each in code}
    powerful = [
        each for each in everybody if each.name in STARTERS or "glue.amazonaws.com" in str(each.trust)
    ]
    assert len(code) > 20
    assert (
        len(jobs)
        == len(powerful) - 3 * len(DEPLOYMENTS)
        == 2 * sum(len(d.jobs) for d in DEPLOYMENTS.values())
    )
    for who in powerful:
        (trusted,) = who.trust["Statement"]
        if trusted["Principal"] not in (
            {"Service": "lambda.amazonaws.com"},
            {"Service": "glue.amazonaws.com"},
        ):
            yield f"{who.stack} {who.name}: trusts {trusted['Principal']}"
    for who in everybody:
        at = f"{who.stack} {who.name}"
        own = who.stack.rpartition("-")[0]
        for job, stack in jobs.items():
            ours = who.name in STARTERS and stack.rpartition("-")[0] == own
            if who.may("glue:StartJobRun", job) and not ours:
                yield f"{at}: glue:StartJobRun {job}"
        yield from (f"{at}: {action}" for action in RUNS_CODE if who.may(action))
        yield from (f"{at}: {a} {each}" for a in WRITES_OBJECT for each in code if who.may(a, each))
        yield from (f"{at}: {a} {each}" for a in OPENS_BUCKET for each in buckets if who.may(a, each))
        yield from (f"{at}: {a} {e.name}" for a in TAKES_ROLE for e in powerful if who.may(a, e.arn))
    yield from starting_otherwise(templates, jobs)


def starting_otherwise(templates, jobs):
    """Schedules, rules and triggers by which a job could be started with arguments."""
    for stack, schedule in of_type(templates, "AWS::Scheduler::Schedule"):
        target = schedule["Target"]
        function = plain(target["Arn"], stack, templates)
        if not function.startswith(arn("lambda", "function:")):
            yield f"{stack}: a schedule whose target is {function}"
        if function == arn("lambda", f"function:{stack.rpartition('-')[0]}-start"):
            asked = json.loads(target["Input"])
            if set(asked) != {"job"} or arn("glue", f"job/{asked['job']}") not in jobs:
                yield f"{stack}: a schedule that asks for {asked}"
    for stack, rule in of_type(templates, "AWS::Events::Rule"):
        # A function, a topic or a queue lets itself be called; anything else needs a role.
        yield from (f"{stack}: a rule with a role" for target in rule["Targets"] if "RoleArn" in target)
    yield from (f"{stack}: a trigger" for stack, _ in of_type(templates, "AWS::Glue::Trigger"))


def lake_of(deployment):
    """The ARN below which the objects of a deployment's lake lie."""
    bucket = (
        deployment.lake.bucket or f"{deployment.name}-lake-{PSEUDO['AWS::AccountId']}-{PSEUDO['AWS::Region']}"
    )
    return f"arn:aws:s3:::{bucket}/{deployment.lake.prefix + '/' if deployment.lake.prefix else ''}"


def rows_of(lake, database):
    """Objects that may hold a row, and where a property of its table could have put one."""
    for table in ("orders", "orders__dead_letters", "metadata"):
        folder = f"{lake}{database}/{table}"
        for file in ("00000-0-a.parquet", "00000-0-a.orc", "00000-0-a-deletes.parquet", "00000-0-a.puffin"):
            yield from (
                f"{folder}/{place}/{file}" for place in ("data", "data/day=1", "metadata", "metadata/data/x")
            )
        yield from (f"{folder}/data/00000-0-a.avro", f"{folder}/data/b/x=metadata/00000-0-a.avro")
        yield f"{folder}/metadata/data"
    for key in (
        "exports/weekly/2026/part-1.csv",
        "exports/weekly/2026/manifest.json",
        "exports/metadata/a.csv.gz",
    ):
        yield f"{lake}{key}"
    yield from (
        f"{lake}_calve/staging/{key}" for key in ("athena/a.csv", "athena/a.csv.metadata", "a.parquet")
    )


def reached(who):
    """The objects with rows that a principal may read or write."""
    deployment = DEPLOYMENTS[who.stack.rpartition("-")[0]]
    database = "lkc-1a2b" if deployment.lake.namespace == "cluster_id" else deployment.lake.database
    for each in rows_of(lake_of(deployment), database):
        for action in ("s3:GetObject", "s3:GetObjectVersion", *WRITES_OBJECT):
            if who.may(action, each):
                yield action, each


def seeing_rows(templates):
    """What lets an operator, or a function that needs metadata alone, see a row or put one in its place."""
    for who in principals(templates):
        if who.name not in (*OPERATORS, *OF_METADATA):
            continue
        at = f"{who.stack} {who.name}"
        yield from (f"{at}: {action} {each}" for action, each in reached(who))
        if who.name in OF_METADATA:
            continue
        yield from (f"{at}: {action}" for action in LETS_SEE if who.may(action))
        for function, handler in functions_of(templates):
            if handler not in CALLED and who.may("lambda:InvokeFunction", function):
                yield f"{at}: invokes {handler}"
        for each in who.statements:
            used = {action for action in each.actions if action.startswith("kms:")}
            if used and (not used <= {"kms:Decrypt", "kms:GenerateDataKey"} or each.conditions != THROUGH_S3):
                yield f"{at}: {used} under {each.conditions}"


def test_nobody_but_a_deploy_can_make_a_job_run_other_code(synthesized):
    assert list(running_other_code(synthesized.templates)) == []


def test_no_operator_can_see_a_row(synthesized):
    assert list(seeing_rows(synthesized.templates)) == []


def test_no_other_policy_gives_an_operator_the_start_of_a_job(synthesized):
    for who in principals(synthesized.templates):
        if who.name in OPERATORS:
            name = who.stack.rpartition("-")[0]
            (denied,) = [each for each in who.statements if each.effect == "Deny"]
            assert (denied.actions, denied.conditions) == (("glue:StartJobRun",), None)
            assert denied.resources == (arn("glue", f"job/{name}-*"),)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_only_readers_of_dead_letters_see_one_or_an_answer_that_may_hold_one(synthesized, name):
    deployment = DEPLOYMENTS[name]
    of_stack = {each.name: each for each in principals(synthesized.templates) if each.stack == f"{name}-lake"}
    reader, with_letters = of_stack["lake/ReadersPolicy"], of_stack["lake/DeadLetterReadersPolicy"]
    lake, per_cluster = lake_of(deployment), deployment.lake.namespace == "cluster_id"
    database = f"{lake}{'lkc-1a2b' if per_cluster else deployment.lake.database}"
    closed = [
        f"{database}/orders__dead_letters/data/00000-0-a.parquet",
        f"{database}/orders__dead_letters/metadata/00001-a.metadata.json",
        f"{lake}_calve/staging/athena-dead-letters/a.csv",
    ]
    for each in closed:
        assert not reader.may("s3:GetObject", each), each
        assert with_letters.may("s3:GetObject", each), each
    for who in (reader, with_letters):
        assert who.may("s3:GetObject", f"{database}/orders/data/00000-0-a.parquet")
        assert not any(who.may(action, f"{database}/orders/data/a.parquet") for action in WRITES_OBJECT)
    queries = "athena:StartQueryExecution"
    groups = [arn("athena", f"workgroup/{name}{end}") for end in ("", "-dead-letters")]
    assert [reader.may(queries, each) for each in groups] == [True, False]
    assert [with_letters.may(queries, each) for each in groups] == [False, True]


EVERYTHING = {"Resource": "*"}
LAKE = "arn:aws:s3:::trading-lake-111122223333-eu-central-1"
IF = {"Condition": {"StringEquals": {"aws:PrincipalTag/team": "a"}}}
JOBS = [
    ({"Action": "glue:Start*"} | EVERYTHING, "glue:StartJobRun"),
    ({"Action": "GLUE:STARTJOBRUN", "Resource": "arn:aws:glue:*:*:job/trading-*"} | IF, "glue:StartJobRun"),
    ({"Action": "glue:UpdateJob", "Resource": "arn:aws:glue:*:*:job/nobodys"}, "glue:UpdateJob"),
    ({"Action": ["s3:PutObject"], "Resource": ["arn:aws:s3:::cdk-*/*.zip"]} | IF, "s3:PutObject"),
    ({"Action": "s3:PutObject", "NotResource": f"{LAKE}/*"}, "s3:PutObject"),
    ({"Action": "s3:PutObject", "Resource": {"Fn::GetAtt": ["Nobody", "Arn"]}}, "s3:PutObject"),
    (
        {"Action": "iam:PassRole", "Resource": "arn:aws:iam::111122223333:role/trading-ingest-main*"},
        "iam:PassRole",
    ),
    ({"NotAction": ["s3:*", "kms:*"]} | EVERYTHING, "lambda:UpdateFunctionCode"),
]
ROWS = [
    ({"Action": "s3:GetObject", "Resource": f"{LAKE}/trading/*/metadata/*"}, "metadata/00000-0-a.parquet"),
    ({"Action": "s3:Get*", "Resource": f"{LAKE}/*"} | IF, "exports/weekly"),
    ({"Action": "s3:PutObject", "Resource": f"{LAKE}/trading/orders?_dead_letters/data/*"}, "s3:PutObject"),
    ({"Action": "athena:*", "Resource": "arn:aws:athena:*:*:workgroup/trading"}, "athena:GetQueryResults"),
    ({"Action": "lakeformation:GetDataAccess"} | EVERYTHING, "lakeformation:GetDataAccess"),
    ({"Action": "kms:Decrypt"} | EVERYTHING, "kms:Decrypt"),
    ({"Action": "lambda:InvokeFunction", "Resource": "arn:aws:lambda:*:*:function:trading-*"}, "csv_export"),
    ({"NotAction": "s3:*"} | EVERYTHING, "secretsmanager:GetSecretValue"),
]


@pytest.fixture
def planted(synthesized):
    """Templates with a statement more in a policy."""

    def plant(policy, *statements):
        templates = {name: copy.deepcopy(each) for name, each in synthesized.templates.items()}
        stack, _, begins = policy.partition("/")
        (id_,) = [
            each for each in synthesized.find(stack, "AWS::IAM::ManagedPolicy") if each.startswith(begins)
        ]
        document = templates[stack]["Resources"][id_]["Properties"]["PolicyDocument"]["Statement"]
        templates[stack]["Resources"]["Nobody"] = {"Type": "AWS::SQS::Queue"}
        document.extend({"Effect": "Allow"} | each for each in statements)
        return templates

    return plant


@pytest.mark.long
@pytest.mark.parametrize(("statement", "told"), JOBS)
def test_a_right_to_run_other_code_would_be_found(planted, statement, told):
    found = list(running_other_code(planted("trading-lake/ReadersPolicy", statement)))
    assert any(told in each for each in found)
    assert all("ReadersPolicy" in each for each in found)


@pytest.mark.parametrize(("statement", "told"), ROWS)
def test_a_right_to_see_a_row_would_be_found(planted, statement, told):
    assert any(told in each for each in seeing_rows(planted("trading-lake/OperatorsRead", statement)))


@pytest.mark.long
@pytest.mark.parametrize(("more", "holds"), [({}, True), (IF, False)])
def test_only_a_denial_without_conditions_takes_a_right_away(planted, more, holds):
    allowed = {"Action": "glue:StartJobRun"} | EVERYTHING
    denied = {"Effect": "Deny", "Action": "glue:Start*", "NotResource": "arn:aws:glue:*:*:trigger/*"} | more
    templates = planted("trading-lake/ReadersPolicy", allowed, denied)
    assert (list(running_other_code(templates)) == []) is holds


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        {"Arn": "arn:aws:scheduler:::aws-sdk:glue:startJobRun", "Input": "{}"},
        {"Input": json.dumps({"job": "trading-nightly", "arguments": {"--scriptLocation": "s3://lake/a"}})},
        {"Input": json.dumps({"job": "<aws.scheduler.execution-id>"})},
    ],
)
def test_a_schedule_that_asks_for_more_than_a_job_would_be_found(planted, target):
    templates = planted("trading-lake/ReadersPolicy")
    (schedule,) = [
        each for each in of_type(templates, "AWS::Scheduler::Schedule") if each[0] == "trading-ingest"
    ]
    schedule[1]["Target"] |= target
    (found,) = running_other_code(templates)
    assert found.startswith("trading-ingest: a schedule")
