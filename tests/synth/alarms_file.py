"""tests/alarms.json, written from the templates: `python -m tests.synth.alarms_file`."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.alarms import FILE
from tests.synth.conftest import Synthesized, synthesize, text

DEPLOYMENTS = ("trading", "shop", "guest")
"""Between them they have every alarm; what an earlier one has counts."""
KEYS = (
    "Namespace",
    "MetricName",
    "Dimensions",
    "Statistic",
    "Period",
    "EvaluationPeriods",
    "Threshold",
    "ComparisonOperator",
    "TreatMissingData",
)


def written(synthesized: Synthesized) -> str:
    """The whole file."""
    alarms: dict[str, Any] = {}
    filters: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    for deployment in DEPLOYMENTS:
        stack = f"{deployment}-monitoring"
        for each in synthesized.find(stack, "AWS::CloudWatch::Alarm").values():
            kept = _plain({key: each[key] for key in KEYS if key in each})
            alarms.setdefault(_paragraph(each["AlarmDescription"]), kept)
        for each in synthesized.find(stack, "AWS::Events::Rule").values():
            mail = each["Targets"][0]["InputTransformer"]["InputTemplate"]
            rules.setdefault(_paragraph(mail), each["EventPattern"])
        for each in synthesized.filters(deployment):
            (made,) = each["MetricTransformations"]
            kept = {key: each[key] for key in ("FilterPattern", "MetricTransformations")}
            if "nightly" not in made["MetricName"] and deployment != "guest":
                filters.setdefault(json.dumps(kept), kept)
    queues = synthesized.find("trading-publish", "AWS::SQS::Queue").values()
    (attempts,) = {each["RedrivePolicy"]["maxReceiveCount"] for each in queues if "RedrivePolicy" in each}
    found = {"attempts": attempts, "alarms": alarms, "filters": list(filters.values()), "rules": rules}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _paragraph(told: str) -> str:
    return str(re.findall("#([a-z-]+)", told)[0])


def _plain(value: Any) -> Any:
    """References as text."""
    match value:
        case list():
            return [_plain(each) for each in value]
        case dict() if not any(key.startswith(("Fn::", "Ref")) for key in value):
            return {key: _plain(each) for key, each in value.items()}
        case dict():
            return text(value)
        case _:
            return value


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        FILE.write_text(written(synthesize(Path(folder))))
