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


def test_with_the_first_key_the_cluster_and_its_network_go(synthesized):
    resources = synthesized.templates["removable-kafka"]["Resources"]
    assert "AWS::MSK::ServerlessCluster" in {each["Type"] for each in resources.values()}
    assert not [each["Type"] for each in resources.values() if each.get("DeletionPolicy") == "Retain"]
