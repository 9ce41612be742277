"""Deployments whose tables Glue does not hold: the rights of their roles, and the parts that they leave out."""

import json

import pytest

from tests.synth.conftest import text
from tests.synth.deployments import TABLE_BUCKET
from tests.synth.evaluator import principals
from tests.synth.test_lake import listed

OF_GLUE = ("glue:GetDatabase", "glue:GetTable", "glue:GetTables", "glue:CreateTable", "glue:UpdateTable")
WRITERS = ("ingest", "maintenance")


def statements(synthesized, stack, service):
    """What the policies of a stack allow in a service: actions and resources."""
    found = []
    for each in synthesized.templates[stack]["Resources"].values():
        properties = each.get("Properties", {})
        documents = [one["PolicyDocument"] for one in properties.get("Policies", [])]
        documents += [properties["PolicyDocument"]] if "PolicyDocument" in properties else []
        for statement in (one for document in documents for one in document["Statement"]):
            actions = [one for one in listed(statement["Action"]) if one.startswith(f"{service}:")]
            if actions and statement["Effect"] == "Allow":
                found += [(one, text(where)) for one in actions for where in listed(statement["Resource"])]
    return found


@pytest.mark.parametrize("name", ["rest-home", "s3tables-home"])
def test_no_role_may_use_the_tables_of_glue(synthesized, name):
    of_home = {each: one for each, one in synthesized.templates.items() if each.startswith(name)}
    assert f"{name}-exports" in of_home
    for who in principals(of_home):
        for statement in who.statements:
            assert not {*OF_GLUE} & {*statement.actions}, who.name
    assert not [each for each in of_home if synthesized.find(each, "Custom::CalveLakeFormation")]


def test_the_roles_read_the_secret_of_a_rest_catalog(synthesized):
    for part in ("ingest", "maintenance", "exports"):
        found = statements(synthesized, f"rest-home-{part}", "secretsmanager")
        assert [where for _, where in found if ":secret:calve/polaris-??????" in where], part
        assert statements(synthesized, f"rest-home-{part}", "s3tables") == []


def test_the_jobs_write_the_table_bucket_and_others_read_it(synthesized):
    for part in WRITERS:
        found = statements(synthesized, f"s3tables-home-{part}", "s3tables")
        assert {where for _, where in found} == {TABLE_BUCKET, f"{TABLE_BUCKET}/table/*"}
        assert {"s3tables:PutTableData", "s3tables:UpdateTableMetadataLocation"} <= {
            each for each, _ in found
        }
    read = {each for each, _ in statements(synthesized, "s3tables-home-exports", "s3tables")}
    assert "s3tables:GetTableData" in read
    assert "s3tables:PutTableData" not in read


def test_who_may_see_no_row_may_read_no_table_of_a_bucket(synthesized):
    """And a reader sees no dead letters."""
    policies = synthesized.find("s3tables-home-lake", "AWS::IAM::ManagedPolicy").values()
    named = {text(each["ManagedPolicyName"]): each["PolicyDocument"]["Statement"] for each in policies}
    may = {
        name: [each for each in found if "s3tables:GetTableData" in listed(each["Action"])]
        for name, found in named.items()
    }
    sees = {name: [each["Effect"] for each in found] for name, found in may.items() if found}
    (readers, both), (letters, whole) = sorted(sees.items(), reverse=True)
    assert ("lake-readers" in readers, both) == (True, ["Allow", "Deny"])
    assert ("dead-letter-readers" in letters, whole) == (True, ["Allow"])
    (closed,) = (each for each in may[readers] if each["Effect"] == "Deny")
    assert closed["Condition"] == {"StringLike": {"s3tables:tableName": "*__dead_letters"}}
    doctor = [each for each, _ in statements(synthesized, "s3tables-home-ingest", "s3tables")]
    assert doctor.count("s3tables:GetTableData") == 2  # the job's, on the bucket and on its tables


def test_no_definition_has_the_credential_and_the_export_knows_the_catalog(synthesized):
    [function] = [
        each
        for each in synthesized.find("rest-home-exports", "AWS::Lambda::Function").values()
        if "CATALOG" in each.get("Environment", {}).get("Variables", {})
    ]
    catalog = json.loads(function["Environment"]["Variables"]["CATALOG"])
    assert catalog["secret"] == "aws:calve/polaris"
    for each in synthesized.find("rest-home-ingest", "AWS::Glue::Job").values():
        conf = text(each["DefaultArguments"]["--conf"])
        assert "spark.sql.catalog.lake.uri=https://polaris.example.com/api/catalog" in conf
        assert "credential" not in conf.replace("|credential|", "")


def test_the_deploy_makes_a_bucket_and_no_database(synthesized):
    for name in ("rest-home", "s3tables-home"):
        [made] = synthesized.find(f"{name}-lake", "Custom::CalveLake").values()
        assert made["Database"] == ""
        assert made["Bucket"]
