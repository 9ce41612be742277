"""Every step of a round has its fault points, every point stands in the code once, and an armed one kills."""

import ast
import inspect
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.errors import ConfigError
from glue_jobs.process import faults
from glue_jobs.process.faults import INNER, POINTS, STEPS
from glue_jobs.rounds.round import Round

ROOT = Path(__file__).parents[4]


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def passed(path: Path) -> list[str]:
    """What a module calls `faults.point` with."""
    return [ast.unparse(call.args[0]) for call in calls(path) if ast.unparse(call.func) == "faults.point"]


def test_the_steps_are_the_public_methods_of_a_round_in_order() -> None:
    methods = [name for name, each in vars(Round).items() if inspect.isfunction(each) and name[0] != "_"]
    assert tuple(name for name in methods if name != "run") == STEPS


def test_run_passes_each_step_once_in_order_between_its_points() -> None:
    [run] = ast.parse(textwrap.dedent(inspect.getsource(Round.run))).body
    passed = [call for call in ast.walk(run) if isinstance(call, ast.Call) and "_passed" in ast.unparse(call)]
    assert [[ast.unparse(each) for each in call.args[:2]] for call in passed] == [
        [repr(step), f"self.{step}"] for step in STEPS
    ]
    module = ast.parse((ROOT / "glue_jobs/rounds/round.py").read_text())
    named = [ast.unparse(node) for node in ast.walk(module) if isinstance(node, ast.Attribute)]
    assert all(named.count(f"self.{step}") == 1 for step in STEPS)
    source = inspect.getsource(Round._passed)
    begin, work, end = (source.index(each) for each in ('f"{step}.begin"', "work(value)", 'f"{step}.end"'))
    assert begin < work < end


def test_every_inner_point_stands_in_the_code_once_and_no_other_does() -> None:
    found = [name for path in sorted((ROOT / "glue_jobs").rglob("*.py")) for name in passed(path)]
    steps = ["f'{step}.begin'", "f'{step}.end'"]
    assert sorted(found) == sorted([*map(repr, INNER), *steps])


def armed(setting: str, *passes: tuple[str, str]) -> int:
    """The exit code of a process, where each table passes its points in a thread of its own."""
    script = f"""
import threading
from glue_jobs.process import faults
faults.arm({setting!r})
def work(table):
    for name, passing in {passes!r}:
        if passing == table:
            faults.point(name, table)
threads = [threading.Thread(target=work, args=(t,), daemon=True) for t in {sorted({t for _, t in passes})!r}]
for each in threads: each.start()
for each in threads: each.join(1)
"""
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=60).returncode


@pytest.mark.parametrize(
    ("setting", "passes", "dies"),
    [
        ("plan.end", [("plan.begin", "a"), ("plan.end", "a")], True),
        ("plan.end", [("plan.begin", "a")], False),
        ("plan.end:2", [("plan.end", "a")], False),
        ("plan.end:2", [("plan.end", "a"), ("plan.end", "b")], True),
        ("plan.end:2@a", [("plan.end", "a"), ("plan.end", "b")], False),
        ("plan.end@a,stage.end@b", [("plan.end", "a"), ("stage.end", "b")], True),
        ("plan.end@a,stage.end@b", [("plan.end", "a"), ("plan.end", "b"), ("stage.end", "a")], False),
    ],
)
def test_the_process_is_killed_when_every_armed_fault_was_reached(
    setting: str, passes: list[tuple[str, str]], dies: bool
) -> None:
    assert armed(setting, *passes) == (-signal.SIGKILL if dies else 0)


def test_a_fault_that_does_not_exist_is_a_named_error() -> None:
    with pytest.raises(ConfigError, match=r"publish\.middle is no fault point"):
        faults.arm("publish.middle")
    assert faults.handlers == {}
    assert len(set(POINTS)) == len(POINTS)
