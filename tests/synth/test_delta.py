"""What writes the Delta logs."""

from lambdas.delta.sync import LEASE_MS
from tests.synth.conftest import text
from tests.synth.test_lake import statements

READING = ("s3:GetObject", "s3:ListBucket", "s3:GetBucketLocation")


def functions(synthesized):
    found = synthesized.find("trading-publish", "AWS::Lambda::Function").values()
    return {each["Handler"].rpartition(".")[2]: each for each in found if ".delta." in each["Handler"]}


def test_the_functions_end_before_a_lease(synthesized):
    found = functions(synthesized)
    assert set(found) == {"feed", "reconcile", "handle"}
    assert found["feed"]["Timeout"] * 1000 < LEASE_MS
    assert found["reconcile"]["Timeout"] * 1000 < LEASE_MS


def test_only_logs_and_vectors_are_written_and_deleted(synthesized):
    resources = synthesized.templates["trading-publish"]["Resources"]
    own = {id: each for id, each in resources.items() if id.startswith("Delta")}
    written = set()
    for statement in statements({"Resources": own}):
        for action in statement["Action"]:
            if action.startswith("s3:") and action not in READING:
                assert action in ("s3:PutObject", "s3:DeleteObject")
                written |= {text(each).partition("/")[2] for each in statement["Resource"]}
            assert not action.startswith("glue:") or action.startswith("glue:Get")
    assert written == {"trading/*/_delta_log/*", "trading/*/_delta_vectors/*"}
