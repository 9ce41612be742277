import json

from lambdas.lake.adoption import TAGS_S
from tests.synth.conftest import text

LAKE = "Custom::CalveLake"


def test_the_bucket_is_encrypted_and_admits_neither_plain_http_nor_old_signatures(synthesized):
    lake = synthesized.one("trading-lake", LAKE)
    assert lake["KeyAlias"] == "alias/trading-lake"
    policy = json.loads(text(lake["BucketPolicy"]))
    denied = {each["Sid"]: each for each in policy["Statement"]}
    assert denied["OnlyTls"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert denied["NoOldSignatures"]["Condition"] == {"NumericGreaterThan": {"s3:signatureAge": "300000"}}
    for each in denied.values():
        assert (each["Effect"], each["Principal"], each["Action"]) == ("Deny", "*", "s3:*")
        assert each["Resource"] == [f"arn:<Partition>:s3:::{text(lake['Bucket'])}{end}" for end in ("", "/*")]


def test_what_makes_the_key_needs_no_tag_that_a_key_has_only_later(synthesized):
    def conditions(action):
        found = statements(synthesized.templates["trading-lake"])
        return [each.get("Condition") for each in found if action in each["Action"]]

    requested = {"StringEquals": {"aws:RequestTag/calve:deployment": "trading"}}
    assert conditions("kms:ListAliases") == conditions("kms:CreateAlias") == [None]
    assert conditions("kms:CreateKey") == conditions("kms:TagResource") == [requested]
    tagged = {"StringEquals": {"aws:ResourceTag/calve:deployment": "trading"}}
    assert conditions("kms:PutKeyPolicy") == conditions("kms:EnableKeyRotation") == [tagged]


def test_the_function_that_makes_the_key_has_time_to_wait_for_its_tags(synthesized):
    (function,) = [
        each
        for each in synthesized.find("trading-lake", "AWS::Lambda::Function").values()
        if each["Handler"] == "lambdas.lake.adoption.handle"
    ]
    assert function["Timeout"] > TAGS_S + 60
    assert int(synthesized.one("trading-lake", LAKE)["ServiceTimeout"]) >= function["Timeout"]


def test_the_bucket_has_a_name_that_a_later_deploy_finds_again(synthesized):
    assert text(synthesized.one("trading-lake", LAKE)["Bucket"]) == "trading-lake-<AccountId>-<Region>"


def test_only_staging_and_files_of_exports_expire(synthesized):
    expiring = json.loads(synthesized.one("trading-lake", LAKE)["Expiring"])
    assert expiring == {"_calve/staging/": 7, "exports/weekly_trades/": 90}


def test_cloudformation_itself_holds_nothing_that_has_data(synthesized):
    kinds = {each["Type"] for each in synthesized.templates["trading-lake"]["Resources"].values()}
    assert not kinds & {"AWS::S3::Bucket", "AWS::KMS::Key", "AWS::Glue::Database", "AWS::Glue::Table"}


def test_without_the_first_key_nothing_in_the_deployment_may_delete_the_lake(synthesized):
    assert not synthesized.find("trading-lake", "Custom::CalveLakeRemoval")
    deadly = {"s3:DeleteBucket", "kms:ScheduleKeyDeletion", "glue:DeleteDatabase", "glue:BatchDeleteTable"}
    for stack in ("trading-lake", "trading-ingest", "trading-exports", "trading-monitoring"):
        for statement in statements(synthesized.templates[stack]):
            assert not deadly & set(statement["Action"]), stack


def test_with_the_first_key_the_stack_carries_what_removes_exactly_its_own(synthesized):
    removal = synthesized.one("removable-lake", "Custom::CalveLakeRemoval")
    assert text(removal["Bucket"]) == "removable-lake-<AccountId>-<Region>"
    assert (removal["Database"], removal["ImportedDatabase"]) == ("orders", "")


def test_what_is_imported_is_neither_made_nor_set_up(synthesized):
    lake = synthesized.one("guest-lake", LAKE)
    assert (lake["Bucket"], lake["BucketPolicy"], lake["KeyAlias"], lake["Database"]) == ("", "", "", "")
    assert lake["NotifyBucket"] == "company-lake"
    roles = synthesized.find("guest-lake", "AWS::IAM::Role").items()
    (role,) = [each for id, each in roles if id.startswith("Storage")]
    (document,) = [each["PolicyDocument"] for each in role["Policies"]]
    on_bucket = [each for each in document["Statement"] if "company-lake" in text(each["Resource"])]
    assert [each["Action"] for each in on_bucket] == [
        ["s3:GetBucketNotification", "s3:PutBucketNotification"],
        ["s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"],
    ]
    assert all(each.endswith("exports/weekly_trades/") for each in json.loads(lake["Expiring"]))


def test_readers_may_read_and_nothing_else(synthesized):
    policy = managed(synthesized, "trading-lake", "trading-lake-readers-")
    reading = ("Get", "List", "Decrypt", "StartQueryExecution", "StopQueryExecution", "GenerateDataKey")
    for statement in policy["Statement"]:
        if "_calve/staging/athena/" in text(statement["Resource"]):
            continue
        for action in listed(statement["Action"]):
            assert action.partition(":")[2].startswith(reading), action


def test_export_readers_read_exported_files_and_nothing_else(synthesized):
    policy = managed(synthesized, "trading-lake", "trading-export-readers-")
    bucket = "arn:<Partition>:s3:::trading-lake-<AccountId>-<Region>"
    allowed = {
        action: [text(each) for each in listed(statement["Resource"])]
        for statement in policy["Statement"]
        for action in listed(statement["Action"])
        if action.startswith("s3:")
    }
    assert allowed == {
        "s3:GetObject": [f"{bucket}/exports/*"],
        "s3:ListBucket": [bucket],
        "s3:GetBucketLocation": [bucket],
    }
    (listing,) = [each for each in policy["Statement"] if "s3:ListBucket" in listed(each["Action"])]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "exports/*"}}


def test_descriptions_of_policies_stay_as_they_are_forever(synthesized):
    """CloudFormation cannot change a description, and a policy with a name cannot be replaced: the upgrade would fail."""
    found = synthesized.find("trading-lake", "AWS::IAM::ManagedPolicy").values()
    assert {text(each["ManagedPolicyName"]): each["Description"] for each in found} == {
        "trading-lake-readers-<Region>": "Reads the tables of trading, and queries them with Athena",
        "trading-dead-letter-readers-<Region>": "Reads tables and dead letters of trading, and queries them with Athena",
        "trading-export-readers-<Region>": "Reads the exported files of trading",
        "trading-operators-read-<Region>": "Sees how trading fares, but no row",
        "trading-operators-<Region>": "Asks the jobs of trading, and runs them",
    }


def test_a_destroy_takes_exactly_these_policies_from_those_who_have_them(synthesized):
    policies = [{"Ref": id} for id in synthesized.find("trading-lake", "AWS::IAM::ManagedPolicy")]
    found = list(statements(synthesized.templates["trading-lake"]))
    (listing,) = [each for each in found if each["Action"] == ["iam:ListEntitiesForPolicy"]]
    (taking,) = [each for each in found if "iam:DetachRolePolicy" in each["Action"]]
    taken = taking["Condition"]["ArnEquals"]["iam:PolicyARN"]
    assert sorted(map(text, taken)) == sorted(map(text, listing["Resource"])) == sorted(map(text, policies))
    joined = synthesized.one("trading-lake", "Custom::CalveAttachments")["Attached"]
    assert sorted(text(joined).split(",")) == sorted(map(text, policies))


def test_answers_of_athena_are_encrypted_and_expire_with_staging(synthesized):
    found = synthesized.find("trading-lake", "AWS::Athena::WorkGroup").values()
    groups = {each["Name"]: each["WorkGroupConfiguration"] for each in found}
    places = {"trading": "athena", "trading-dead-letters": "athena-dead-letters"}
    assert groups.keys() == places.keys()
    for name, group in groups.items():
        assert group["EnforceWorkGroupConfiguration"]
        result = group["ResultConfiguration"]
        assert text(result["OutputLocation"]).endswith(f"/_calve/staging/{places[name]}/")
        assert result["EncryptionConfiguration"]["EncryptionOption"] == "SSE_KMS"


def managed(synthesized, stack, name):
    """A managed policy by how its name begins."""
    found = synthesized.find(stack, "AWS::IAM::ManagedPolicy").values()
    (policy,) = [each for each in found if text(each["ManagedPolicyName"]) == f"{name}<Region>"]
    return policy["PolicyDocument"]


def listed(value):
    return value if isinstance(value, list) else [value]


def statements(template):
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        documents = [each["PolicyDocument"] for each in properties.get("Policies", [])]
        if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            documents.append(properties["PolicyDocument"])
        for document in documents:
            for statement in document["Statement"]:
                yield statement | {
                    "Action": listed(statement["Action"]),
                    "Resource": listed(statement["Resource"]),
                }
