"""Where Lake Formation governs, a role's right to the catalog in IAM is nothing without a grant."""

import json

import pytest

from tests.synth.evaluator import plain, principals

GRANTS = "Custom::CalveLakeFormation"
KINDS = {
    "Removers": {"glue:DeleteTable", "glue:BatchDeleteTable"},
    "Writers": {"glue:CreateTable", "glue:UpdateTable"},
    "Lookers": {
        "glue:GetTable",
        "glue:GetTables",
        "glue:GetDatabase",
        "glue:GetDatabases",
        "glue:GetCatalog",
    },
}
ITSELF = {"lake/StorageFunctionRole", "lake/FormationFunctionRole"}
"""Which makes the database, and which grants."""


def granted(templates):
    """Each grant of a template: role and kind."""
    for stack, template in templates.items():
        for resource in template["Resources"].values():
            if resource["Type"] == GRANTS:
                for kind in KINDS:
                    roles = plain(resource["Properties"][kind], stack, templates).split(",")
                    yield from ((role, kind) for role in roles if role)


def test_every_role_with_a_right_to_the_catalog_has_the_grant_that_fits(synthesized):
    wanted = set()
    for who in principals(synthesized.templates):
        if who.trust and who.name not in ITSELF:
            actions = {action for each in who.statements for action in each.actions}
            kinds = [kind for kind, those in KINDS.items() if actions & those]
            wanted |= {(who.arn, kinds[0])} if kinds else set()
    assert len(wanted) > 25
    assert {kind for _, kind in wanted} == set(KINDS)
    assert sorted(granted(synthesized.templates)) == sorted(wanted)


@pytest.mark.parametrize("stack", ["ingest", "maintenance"])
def test_a_job_is_defined_when_its_role_has_its_grants(synthesized, stack):
    resources = synthesized.templates[f"trading-{stack}"]["Resources"]
    (grants,) = [id_ for id_, each in resources.items() if each["Type"] == GRANTS]
    jobs = [each for each in resources.values() if each["Type"] == "AWS::Glue::Job"]
    assert jobs
    assert all(grants in each["DependsOn"] for each in jobs)


def test_the_function_that_grants_is_made_before_and_has_no_other_right(synthesized):
    (function,) = [
        each
        for each in synthesized.find("trading-lake", "AWS::Lambda::Function").values()
        if each["Handler"] == "lambdas.lake.formation.handle"
    ]
    assert function["FunctionName"] == "trading-lake-formation"
    artifacts = json.loads((synthesized.folder / "manifest.json").read_text())["artifacts"]
    for stack in ("ingest", "maintenance", "exports", "publish"):
        for token in synthesized.find(f"trading-{stack}", GRANTS).values():
            assert plain(token["ServiceToken"], f"trading-{stack}", synthesized.templates).endswith(
                ":function:trading-lake-formation"
            )
        assert "trading-lake" in artifacts[f"trading-{stack}"]["dependencies"]
    (who,) = [
        each
        for each in principals(synthesized.templates)
        if (each.stack, each.name) == ("trading-lake", "lake/FormationFunctionRole")
    ]
    allowed = {action for each in who.statements for action in each.actions}
    services = {action.partition(":")[0] for action in allowed}
    assert services == {"lakeformation", "glue", "logs", "xray"}
    assert not {"lakeformation:PutDataLakeSettings", "lakeformation:GetDataAccess"} & allowed


def test_readers_may_ask_for_what_lake_formation_granted_them(synthesized):
    (readers,) = [
        each
        for each in principals(synthesized.templates)
        if (each.stack, each.name) == ("trading-lake", "lake/ReadersPolicy")
    ]
    assert readers.may("lakeformation:GetDataAccess")
