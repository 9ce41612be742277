"""What keeps an Iceberg REST catalog equal to Glue."""

import json

from calve.config.publishing import IcebergRest
from lambdas.catalog_sync.sync import LEASE_MS, WRITE_MS
from lambdas.followers import Published
from tests.synth.conftest import text
from tests.synth.deployments import CATALOG
from tests.synth.test_lake import statements

FUNCTIONS = {"feed", "reconcile", "handle"}


def functions(synthesized, stack):
    found = synthesized.find(stack, "AWS::Lambda::Function").values()
    return {each["Handler"].rpartition(".")[2]: each for each in found if "catalog_sync" in each["Handler"]}


def published(synthesized, stack):
    """What the published file says. All functions and the custom resource must name the same file."""
    resource = synthesized.one(stack, "Custom::CalveCatalogSync")
    files = {text(resource["PublishedFile"])}
    files |= {
        text(each["Environment"]["Variables"]["PUBLISHED_FILE"])
        for each in functions(synthesized, stack).values()
    }
    (file,) = files
    name = file.rpartition("/")[2].removesuffix(".json")
    return Published.from_json((synthesized.folder / f"asset.{name}.json").read_text())


def test_what_the_functions_are_told(synthesized):
    found = functions(synthesized, "trading-publish")
    assert set(found) == FUNCTIONS
    for each in found.values():
        assert IcebergRest.from_json(each["Environment"]["Variables"]["CATALOG"]) == CATALOG
    told = published(synthesized, "trading-publish")
    tables = frozenset({"trading.stock_trades", "trading.users"})
    assert told == Published("trading", tables, database="trading")
    resource = synthesized.one("trading-publish", "Custom::CalveCatalogSync")
    assert Published.from_json(resource["Published"]) == Published("trading", database="trading")


def test_tables_of_a_cluster_whose_id_nobody_knows_are_published_by_name(synthesized):
    told = published(synthesized, "streams-publish")
    assert told == Published("streams", patterns=("shop_[a-z0-9_]*", "orders"))


def test_a_function_that_follows_commits_ends_before_its_lease(synthesized):
    feed = functions(synthesized, "trading-publish")["feed"]
    assert feed["Timeout"] * 1000 < LEASE_MS - WRITE_MS


def test_a_batch_is_not_seen_twice_while_it_is_worked_on(synthesized):
    feed = functions(synthesized, "streams-publish")["feed"]
    queues = synthesized.find("streams-publish", "AWS::SQS::Queue").values()
    (queue,) = (each for each in queues if "RedrivePolicy" in each)
    assert queue["VisibilityTimeout"] >= 6 * feed["Timeout"]
    mapping = synthesized.one("streams-publish", "AWS::Lambda::EventSourceMapping")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_what_sets_functions_off_goes_before_what_drops_the_tables(synthesized):
    resources = synthesized.templates["streams-publish"]["Resources"]
    (resource,) = (id for id, each in resources.items() if each["Type"] == "Custom::CalveCatalogSync")
    for each in resources.values():
        if each["Type"] in ("AWS::Events::Rule", "AWS::Lambda::EventSourceMapping"):
            assert resource in each["DependsOn"], each["Type"]


def test_nothing_of_the_lake_but_metadata_is_read_and_nothing_is_written(synthesized):
    template = synthesized.templates["streams-publish"]
    for statement in statements(template):
        for action in statement["Action"]:
            if action.startswith(("s3:", "glue:")):
                assert action in ("s3:GetObject", "glue:GetTable", "glue:GetTables", "glue:GetDatabases")
            if action == "s3:GetObject" and "metadata" in str(statement["Resource"]):
                ends = {text(each).rpartition("/metadata/")[2] for each in statement["Resource"]}
                assert ends == {"*.metadata.json", "*.avro", "calve-orphans.json"}
            elif action == "s3:GetObject":
                assert "cdk-" in str(statement["Resource"]), "a file beside the template"
    assert "client_secret" not in json.dumps(template)


def test_a_catalog_that_is_made_has_credentials_of_its_own(synthesized):
    (secret,) = synthesized.find("guest-publish", "AWS::SecretsManager::Secret")
    made = synthesized.one("guest-publish", "Custom::CalvePolarisCatalog")
    assert json.loads(text(made["Names"]))["catalog"] == "guest"
    found = functions(synthesized, "guest-publish")
    for each in FUNCTIONS:
        assert f"aws:<{secret}>" in text(found[each]["Environment"]["Variables"]["CATALOG"])
    resources = synthesized.templates["guest-publish"]["Resources"]
    (sync,) = (each for each in resources.values() if each["Type"] == "Custom::CalveCatalogSync")
    assert any("Bootstrap" in each for each in sync["DependsOn"])


def test_differences_that_stay_are_alarmed_about(synthesized):
    alarms = synthesized.find("trading-monitoring", "AWS::CloudWatch::Alarm").values()
    names = {each["AlarmName"] for each in alarms}
    assert {
        "trading-catalog-failed",
        "trading-catalog-reconcile-errors",
        "trading-catalog-messages-failed",
    } <= names
