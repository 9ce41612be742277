"""What sends lineage."""

from lambdas.lineage.handler import LEASE_MS
from tests.synth.test_lake import statements


def test_the_functions_end_before_a_lease(synthesized):
    found = synthesized.find("trading-publish", "AWS::Lambda::Function").values()
    own = {each["Handler"].rpartition(".")[2]: each for each in found if ".lineage." in each["Handler"]}
    assert set(own) == {"feed", "reconcile", "handle"}
    assert all(own[name]["Timeout"] * 1000 < LEASE_MS for name in ("feed", "reconcile"))


def test_no_row_and_no_file_is_read_and_nothing_of_the_lake_is_written(synthesized):
    resources = synthesized.templates["trading-publish"]["Resources"]
    own = {id: each for id, each in resources.items() if id.startswith("Lineage")}
    for statement in statements({"Resources": own}):
        for action in statement["Action"]:
            if action == "s3:GetObject":
                assert "metadata" in str(statement["Resource"]) or "assets" in str(statement["Resource"])
            assert not action.startswith(("s3:Put", "s3:Delete"))
            assert not action.startswith("glue:") or action.startswith("glue:Get")
