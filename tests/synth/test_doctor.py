"""The function of `calve doctor --remote`: where it stands, and that it can only look."""

from importlib.metadata import version

from tests.synth.conftest import text
from tests.synth.test_lake import listed

METADATA = tuple(f"/trading/*/metadata/{end}" for end in ("*.metadata.json", "*.avro", "calve-orphans.json"))
LOOKS = {
    *("s3:GetObject", "s3:ListBucket", "kms:Decrypt", "glue:GetDatabase", "glue:GetTable"),
    *("glue:GetSchema", "glue:ListSchemas", "glue:GetSchemaVersion", "secretsmanager:GetSecretValue"),
    *("kafka-cluster:Connect", "kafka-cluster:DescribeCluster", "kafka-cluster:DescribeTopic"),
    *("lakeformation:GetDataLakeSettings", "lakeformation:ListPermissions"),
}
OF_EVERY_FUNCTION = {
    *("logs:CreateLogStream", "logs:PutLogEvents", "xray:PutTraceSegments", "xray:PutTelemetryRecords"),
    *("ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"),
    *("ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"),
}


def doctor(synthesized, stack):
    (found,) = (
        each
        for each in synthesized.find(stack, "AWS::Lambda::Function").values()
        if each["Handler"] == "lambdas.doctor.handler.handle"
    )
    return found


def allowed(synthesized, stack):
    (role,) = (
        each
        for id, each in synthesized.find(stack, "AWS::IAM::Role").items()
        if id.startswith("DoctorExamine")
    )
    return [statement for policy in role["Policies"] for statement in policy["PolicyDocument"]["Statement"]]


def test_it_reads_and_writes_nothing(synthesized):
    for stack in ("trading-ingest", "streams-ingest", "guest-ingest"):
        actions = {action for each in allowed(synthesized, stack) for action in listed(each["Action"])}
        assert actions <= LOOKS | OF_EVERY_FUNCTION


def test_of_the_lake_it_reads_no_data_file(synthesized):
    for each in allowed(synthesized, "trading-ingest"):
        if "s3:GetObject" in listed(each["Action"]):
            for resource in map(text, listed(each["Resource"])):
                assert resource.endswith((*METADATA, ".json")), resource


def test_it_stands_beside_the_jobs_and_is_told_what_only_a_deploy_knows(synthesized):
    made = doctor(synthesized, "streams-ingest")
    assert made["VpcConfig"]["SubnetIds"]
    told = made["Environment"]["Variables"]
    assert "SERVERS" in told
    assert "DATABASE" not in told  # it is named after the cluster
    plain = doctor(synthesized, "trading-ingest")
    assert "VpcConfig" not in plain
    told = plain["Environment"]["Variables"]
    assert (told["DATABASE"], "SERVERS" in told) == ("trading", False)
    assert len(told["FILES"].split(",")) == 2


def test_its_name_is_an_output(synthesized):
    outputs = synthesized.templates["trading-ingest"]["Outputs"]
    assert "DoctorFunction" in outputs
    assert outputs["Release"]["Value"] == version("calve")
