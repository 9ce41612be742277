import json


def test_a_destroy_keeps_the_cluster_that_was_made_with_its_network_and_does_not_fail(synthesized):
    resources = synthesized.templates["streams-kafka"]["Resources"]
    kept = [each for each in resources.values() if each.get("DeletionPolicy") == "Retain"]
    kinds = {each["Type"] for each in kept}
    assert {
        *("AWS::MSK::ServerlessCluster", "AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::SecurityGroup"),
        *("AWS::EC2::VPCEndpoint", "AWS::EC2::RouteTable"),
    } <= kinds
    assert not kinds & {"AWS::Glue::Connection", "AWS::Lambda::Function", "AWS::IAM::Role"}
    manifest = json.loads((synthesized.folder / "manifest.json").read_text())
    assert not manifest["artifacts"]["streams-kafka"]["properties"].get("terminationProtection")
    assert {"ClusterArn", "Subnets", "SecurityGroups"} <= {*synthesized.templates["streams-kafka"]["Outputs"]}


def test_nothing_changes_that_would_need_another_cluster(synthesized):
    """Name, tags, subnets and groups of a serverless cluster are create-only; so are zones and ranges of subnets.

    AWS lists zones by name. Should a new one ever come first, the deploy fails at the cluster's name and keeps all there is.
    """
    resources = synthesized.templates["streams-kafka"]["Resources"]
    vpc, group, *subnets = (
        id
        for kind in ("VPC", "SecurityGroup", "Subnet")
        for id in synthesized.find("streams-kafka", f"AWS::EC2::{kind}")
    )
    (cluster,) = (each for each in resources.values() if each["Type"] == "AWS::MSK::ServerlessCluster")
    assert (vpc, group, subnets) == (
        "NetworkVpc7FB7348F",
        "NetworkGroupC541F250",
        ["NetworkVpcjobsSubnet1SubnetCFC3CB9E", "NetworkVpcjobsSubnet2SubnetA292FF20"],
    )
    places = [{"Ref": each} for each in subnets]
    made = cluster["Properties"]
    assert made == {
        "ClientAuthentication": {"Sasl": {"Iam": {"Enabled": True}}},
        "ClusterName": "streams",
        "Tags": {
            "calve:deployment": made["Tags"]["calve:deployment"]
        },  # an app has one deployment, this one several
        "VpcConfigs": [{"SecurityGroups": [{"Fn::GetAtt": [group, "GroupId"]}], "SubnetIds": places}],
    }
    assert resources[vpc]["Properties"]["CidrBlock"] == "10.0.0.0/16"
    assert resources[group]["Properties"]["GroupDescription"] == "Jobs, brokers and endpoints"
    for number, each in enumerate(subnets):
        made = resources[each]["Properties"]
        assert made["AvailabilityZone"] == {"Fn::Select": [number, {"Fn::GetAZs": ""}]}
        assert made["CidrBlock"] == f"10.0.{128 * number}.0/17"
        assert made["VpcId"] == {"Ref": vpc}
    for each in (cluster, *(resources[id] for id in (vpc, group, *subnets))):
        assert each["UpdateReplacePolicy"] == "Retain"


def test_with_the_first_key_the_cluster_and_its_network_go(synthesized):
    resources = synthesized.templates["removable-kafka"]["Resources"]
    assert "AWS::MSK::ServerlessCluster" in {each["Type"] for each in resources.values()}
    assert not [each["Type"] for each in resources.values() if each.get("DeletionPolicy") == "Retain"]
