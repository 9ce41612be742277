import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli.embedded import processes
from cli.embedded.layout import Layout
from cli.embedded.processes import Process
from cli.look.doctor import command
from lambdas.doctor.finding import Finding, Probe, examine
from stacks.jobs.jars import jar_folder, pinned

HEAVY = ("pyspark", "boto3", "confluent_kafka", "pyarrow", "pyiceberg", "duckdb", "pydantic", "fastavro")


def test_a_probe_that_breaks_or_hangs_is_a_finding_and_stops_no_other() -> None:
    held = threading.Event()

    def broken() -> Finding:
        raise OSError("no such device")

    def quoting() -> Finding:
        raise ValueError("cannot use the password hunter2")

    def hanging() -> Finding:
        held.wait(60)
        return Finding("hanging", "ok", "")

    def fine() -> Finding:
        return Finding("fine", "ok", "")

    probes: dict[str, Probe] = {"broken": broken, "quoting": quoting, "hanging": hanging, "fine": fine}
    findings = examine(probes, limit_s=0.5)
    held.set()
    assert [finding.state for finding in findings] == ["fail", "fail", "warn", "ok"]
    assert findings[1].detail == "ValueError"
    assert "no such device" in findings[0].detail


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("empty_cache")
def test_a_damaged_jar_is_named_with_the_command_that_cures_it(tmp_path: Path) -> None:
    jar = pinned()[0]
    file = jar_folder() / jar.file
    file.parent.mkdir(parents=True)
    file.write_bytes(b"?" * jar.size_bytes)
    finding = command.jars(tmp_path)
    assert finding.state == "fail"
    assert jar.file in finding.detail
    assert finding.cure == f"rm {file} && calve up"


@pytest.mark.usefixtures("empty_cache")
def test_what_was_never_downloaded_or_started_is_absent_not_a_fault(tmp_path: Path) -> None:
    findings = [command.jars(tmp_path), command.emulator(tmp_path), command.server("kafka")(tmp_path)]
    assert [finding.state for finding in findings] == ["absent"] * 3
    assert all(finding.cure == "calve up" for finding in findings)


def test_a_server_that_was_killed_is_a_fault(tmp_path: Path) -> None:
    recorded = processes.State("id", "secret", {"kafka": 1}, {"kafka": Process(2**22 + 1, "1")}, ready=True)
    processes.write_state(Layout(tmp_path).stack_file, recorded)
    assert command.server("kafka")(tmp_path).state == "fail"


def test_memory_is_what_the_system_calls_available(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable: 2048 kB\n")
    assert command.available_memory(meminfo) == 2048 * 1024
    assert command.available_memory(tmp_path / "absent") > 0


def test_findings_come_as_one_json_document_and_a_fault_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "calve.yaml").touch()
    recorded = processes.State("id", "secret", {"kafka": 1}, {"kafka": Process(2**22 + 1, "1")}, ready=True)
    processes.write_state(Layout(tmp_path).stack_file, recorded)
    arguments = [str(Path(sys.executable).with_name("calve")), "doctor", "--output", "json"]
    answer = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1, answer.stderr
    states = {finding["check"]: finding["state"] for finding in json.loads(answer.stdout)}
    assert list(states) == [*command.CHECKS, *command.STACK_CHECKS, "configuration"]
    assert states["configuration"] == "fail"
    assert states["kafka"] == "fail"
    assert "secret" not in answer.stdout + answer.stderr


@pytest.mark.parametrize("module", HEAVY)
def test_the_table_of_contents_imports_nothing_heavy(module: str, light_modules: set[str]) -> None:
    assert module not in light_modules


@pytest.fixture(scope="module")
def light_modules() -> set[str]:
    program = "import cli.main, sys; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(answer.stdout.split())
