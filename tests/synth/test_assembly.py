"""What a change of calve.yaml takes away: the stacks are still there, empty, and no stack keeps another from losing something."""

import json

from stacks.stateful.operators import PARTS


def test_every_deployment_has_every_stack_and_those_that_it_leaves_out_have_nothing(synthesized):
    for name in ("trading", "streams", "guest", "shop", "removable", "rest-home", "s3tables-home"):
        for part in PARTS:
            assert (synthesized.folder / f"{name}-{part}.template.json").exists()
    left_out = {
        file.name.split(".")[0]
        for file in synthesized.folder.glob("*.template.json")
        if json.loads(file.read_text()) == {}
    }
    assert left_out == {
        *("trading-kafka", "streams-keys"),
        *(f"{name}-home-{part}" for name in ("rest", "s3tables") for part in ("keys", "publish")),
        "rest-home-kafka",
        *(f"{name}-{part}" for name in ("shop", "removable") for part in ("keys", "exports", "publish")),
    }


def test_a_stack_that_is_left_out_goes_after_those_that_may_import_from_it(synthesized):
    artifacts = json.loads((synthesized.folder / "manifest.json").read_text())["artifacts"]
    needed = {f"shop-{part}" for part in ("lake", "kafka", "ingest", "maintenance", "monitoring")}
    assert needed <= set(artifacts["shop-exports"]["dependencies"])


def test_what_monitoring_of_the_release_before_imports_is_still_exported(synthesized):
    """CloudFormation updates the jobs first, and refuses to remove an export that a deployed stack imports."""
    for part, jobs in {"ingest": ("main", "idle"), "maintenance": ("main", "idle")}.items():
        outputs = synthesized.templates[f"trading-{part}"]["Outputs"]
        names = [each["Export"]["Name"] for each in outputs.values() if "Export" in each]
        roles = [
            name for name in names if name.startswith(f"trading-{part}:ExportsOutputRef") and "Role" in name
        ]
        assert len(roles) == len(jobs), names


def test_monitoring_imports_nothing_so_that_what_it_watches_can_be_removed(synthesized):
    for name, template in synthesized.templates.items():
        if name.endswith("-monitoring"):
            assert "Fn::GetStackOutput" in json.dumps(template)
            assert "Fn::ImportValue" not in json.dumps(template)
