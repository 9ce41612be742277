"""A test as your own project would have it: records that were dead letters once are rows."""

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def test_an_amount_with_a_comma_is_a_row() -> None:
    command = ["calve", "preview", "orders", "--capture", "commas", "--env", "fixed", "--output", "json"]
    made = json.loads(subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, check=True).stdout)
    assert made["refused"] == []
    assert made["rows"] == 2
