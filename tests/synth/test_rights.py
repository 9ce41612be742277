"""Each action of the stacks' policies has a request by which the emulator's IAM is tested."""

from tests.integration.support.rights import CASES, NO_REQUEST, NO_SERVICE_HERE, kms_cases, s3_cases
from tests.synth.evaluator import principals


def test_every_action_that_a_policy_names_is_asked_for(synthesized):
    named = {
        action
        for who in principals(synthesized.templates)
        for each in who.statements
        for action in each.actions
        if action.partition(":")[0] not in NO_SERVICE_HERE
    }
    cases = (*CASES, *s3_cases("key"), *kms_cases("key"))
    asked = {str(need["Action"]) for case in cases for need in case.needs}
    assert len(named) > 70
    assert named - asked == NO_REQUEST
