"""Lake Formation is moto's, which judges nobody: refusals are raised before its answer."""

import json

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from calve.errors import ConfigError
from lambdas.aws import EVERYBODY, governs
from lambdas.function import from_properties
from lambdas.lake.adoption import Clients as LakeClients
from lambdas.lake.adoption import adopt
from lambdas.lake.formation import LATE_S, Clients, Grants, keep, revoke
from tests.unit.lambdas.job_control.world import Clock
from tests.unit.lambdas.test_lake_adoption import LAKE

JOB, DOCTOR, OTHER = (
    f"arn:aws:iam::123456789012:role/trading-{each}" for each in ("ingest-main", "ingest-Doctor", "ingest-b")
)
PROPERTIES = {
    "Deployment": "trading",
    "Stack": "trading-ingest",
    "Database": "trading",
    "Files": "arn:aws:s3:::lake/team",
    "Writers": JOB,
    "Lookers": DOCTOR,
    "Removers": "",
}
GRANTS = from_properties(Grants, PROPERTIES)
OPEN = [{"Principal": {"DataLakePrincipalIdentifier": EVERYBODY}, "Permissions": ["ALL"]}]
ON_DATABASE = {"Database": {"Name": "trading"}}


def of(**properties):
    return from_properties(Grants, PROPERTIES | properties)


@pytest.fixture
def aws(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        made = Clients(*(boto3.client(each, "eu-central-1") for each in ("lakeformation", "glue", "sts")))
        settings(made, databases=[], tables=[])
        yield made


def settings(aws, *, databases, tables):
    given = {"CreateDatabaseDefaultPermissions": databases, "CreateTableDefaultPermissions": tables}
    aws.formation.put_data_lake_settings(DataLakeSettings={"DataLakeAdmins": [], **given})


def database(aws, name="trading", **more):
    aws.glue.create_database(
        DatabaseInput={"Name": name, "Parameters": {"calve:deployment": "trading"}} | more
    )


def granted(aws):
    """Each right of each role, by resource."""
    found = aws.formation.list_permissions()["PrincipalResourcePermissions"]
    return {
        (each["Principal"]["DataLakePrincipalIdentifier"].rpartition("/")[2], shown(each["Resource"])): set(
            each["Permissions"]
        )
        for each in found
    }


def shown(resource):
    match resource:
        case {"Database": {"Name": name}}:
            return name
        case {"Table": {"DatabaseName": name, "TableWildcard": _}}:
            return f"{name}.*"
        case {"DataLocation": {"ResourceArn": place}}:
            return place
    return ", ".join(resource)


def refuse(client, operation, code, message="no", *, times=10**6):
    """Let the next requests fail; returns those that came."""
    seen = []

    def fail(model, params, **_):
        seen.append(json.loads(params["body"]))
        if len(seen) <= times:
            raise ClientError({"Error": {"Code": code, "Message": message}}, model.name)

    client.meta.events.register(
        f"before-call.{client.meta.service_model.service_id.hyphenize()}.{operation}", fail
    )
    return seen


def test_where_it_governs_each_role_has_what_it_does_also_on_later_tables(aws):
    database(aws)
    assert keep(GRANTS, None, aws) == 4
    assert granted(aws) == {
        ("trading-ingest-main", "trading"): {"DESCRIBE", "CREATE_TABLE"},
        ("trading-ingest-main", "trading.*"): {"DESCRIBE", "ALTER", "SELECT", "INSERT", "DELETE"},
        ("trading-ingest-Doctor", "trading"): {"DESCRIBE"},
        ("trading-ingest-Doctor", "trading.*"): {"DESCRIBE"},
    }


def test_a_grant_may_be_repeated(aws):
    database(aws)
    keep(GRANTS, None, aws)
    once = granted(aws)
    keep(GRANTS, GRANTS, aws)
    assert granted(aws) == once


def test_a_revocation_takes_all_and_may_be_repeated(aws):
    database(aws)
    keep(of(Removers=OTHER), None, aws)
    assert granted(aws)["trading-ingest-b", "trading.*"] == {"DESCRIBE", "DROP"}
    for _ in range(2):
        revoke(of(Removers=OTHER), aws)
    assert granted(aws) == {}


def test_a_role_that_is_a_jobs_no_more_loses_its_grants(aws):
    database(aws)
    before = of(Writers=f"{JOB},{OTHER}")
    keep(before, None, aws)
    keep(GRANTS, before, aws)
    assert {who for who, _ in granted(aws)} == {"trading-ingest-main", "trading-ingest-Doctor"}
    assert len(granted(aws)) == 4


def test_grants_of_an_account_that_iam_alone_governs_again_go(aws):
    database(aws)
    keep(GRANTS, None, aws)
    settings(aws, databases=OPEN, tables=OPEN)
    aws.formation.grant_permissions(Resource=ON_DATABASE, **OPEN[0])
    keep(GRANTS, GRANTS, aws)
    assert {who for who, _ in granted(aws)} == {EVERYBODY}


def test_where_iam_alone_governs_nothing_is_granted(aws):
    settings(aws, databases=OPEN, tables=OPEN)
    database(aws)
    seen = refuse(aws.formation, "GrantPermissions", "AccessDeniedException")
    assert keep(GRANTS, None, aws) == 0
    assert not seen
    assert granted(aws) == {}


@pytest.mark.parametrize(
    ("databases", "tables", "own", "everybody", "governed"),
    [
        (OPEN, OPEN, None, False, False),
        (OPEN, OPEN, None, True, False),
        ([], [], None, False, True),
        (OPEN, [], None, True, True),
        ([], OPEN, None, False, True),
        ([], [], OPEN, True, False),  # made before the account was governed
        (OPEN, OPEN, [], True, True),
    ],
)
def test_a_database_is_governed_where_iam_lacks_it_or_its_later_tables(
    aws, monkeypatch, databases, tables, own, everybody, governed
):
    settings(aws, databases=databases, tables=tables)
    database(aws, **({} if own is None else {"CreateTableDefaultPermissions": own}))
    if everybody:
        aws.formation.grant_permissions(Resource=ON_DATABASE, **OPEN[0])
    assert governs(aws.formation, aws.glue, "trading") is governed


def test_a_database_whose_grants_lack_iam_is_governed(aws):
    settings(aws, databases=OPEN, tables=OPEN)
    database(aws)
    keep(GRANTS, None, aws)
    assert not granted(aws)
    aws.formation.grant_permissions(
        Resource=ON_DATABASE, **OPEN[0] | {"Principal": {"DataLakePrincipalIdentifier": JOB}}
    )
    assert keep(GRANTS, None, aws) == 4


def test_a_database_that_it_hides_is_governed(aws):
    settings(aws, databases=OPEN, tables=OPEN)
    refuse(
        aws.glue,
        "GetDatabase",
        "AccessDeniedException",
        "Insufficient Lake Formation permission(s): Required Describe",
    )
    assert governs(aws.formation, aws.glue, "trading")


def test_a_database_that_iam_denies_is_an_error(aws):
    refuse(aws.glue, "GetDatabase", "AccessDeniedException", "not authorized to perform: glue:GetDatabase")
    with pytest.raises(ClientError, match="not authorized"):
        keep(GRANTS, None, aws)


def test_who_may_not_grant_learns_whom_to_make_an_administrator(aws):
    database(aws)
    refuse(aws.formation, "GrantPermissions", "AccessDeniedException")
    with pytest.raises(ConfigError, match="governs the tables of trading") as caught:
        keep(GRANTS, None, aws)
    assert "data lake administrator" in str(caught.value)
    assert "docs/before-a-deploy.md#lake-formation" in str(caught.value)


def test_a_destroy_does_not_fail_where_nothing_can_be_taken(aws):
    seen = refuse(aws.formation, "RevokePermissions", "AccessDeniedException")
    revoke(GRANTS, aws)
    assert len(seen) == 4


def test_a_role_that_it_does_not_know_yet_is_granted_later(aws):
    database(aws)
    refuse(aws.formation, "GrantPermissions", "InvalidInputException", "Invalid principal", times=3)
    clock = Clock()
    keep(GRANTS, None, aws, clock)
    assert clock.now == 15
    assert len(granted(aws)) == 4


def test_a_role_that_it_never_knows_is_the_reason(aws):
    database(aws)
    refuse(aws.formation, "GrantPermissions", "InvalidInputException", "Invalid principal")
    clock = Clock()
    with pytest.raises(ClientError, match="Invalid principal"):
        keep(GRANTS, None, aws, clock)
    assert clock.now == LATE_S


def test_a_job_may_make_tables_at_the_location_that_is_registered(aws):
    database(aws)
    for place in ("lake", "lake/team", "lake/te", "lake/team/exports", "other"):
        aws.formation.register_resource(
            ResourceArn=f"arn:aws:s3:::{place}", RoleArn="arn:aws:iam::123456789012:role/r"
        )
    keep(GRANTS, None, aws)
    places = {place: who for who, place in granted(aws) if place.startswith("arn:")}
    assert places == dict.fromkeys(("arn:aws:s3:::lake", "arn:aws:s3:::lake/team"), "trading-ingest-main")


def test_jobs_that_make_databases_may_make_them_and_all_have_rights_to_those_that_exist(aws):
    for name in ("lkc-1", "lkc-2"):
        database(aws, name)
    database(aws, "somebodys", Parameters={})
    keep(of(Database=""), None, aws)
    assert granted(aws)["trading-ingest-main", "Catalog"] == {"CREATE_DATABASE"}
    assert {place for who, place in granted(aws) if who == "trading-ingest-Doctor"} == {
        "lkc-1",
        "lkc-1.*",
        "lkc-2",
        "lkc-2.*",
    }


@pytest.mark.parametrize("operation", ["GetDatabase", "CreateDatabase"])
def test_a_deploy_that_may_not_make_its_database_says_who_may(aws, operation):
    refuse(
        aws.glue, operation, "AccessDeniedException", "Insufficient Lake Formation permission(s): Required X"
    )
    clients = LakeClients(None, None, aws.glue, "eu-central-1", "123456789012")
    with pytest.raises(ConfigError, match="does not let calve make the Glue database trading") as caught:
        adopt(LAKE, clients)
    assert "lake.import_database: true" in str(caught.value)
