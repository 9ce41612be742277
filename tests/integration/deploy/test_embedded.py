import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from cli.embedded import processes
from cli.embedded import stack as embedded
from cli.embedded.layout import Layout
from cli.embedded.stack import Stack
from cli.progress import LineProgress
from tests.integration.support.servers import outages

QUIET = LineProgress(lambda _line: None)
DEADLINE_S = 30


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def recorded(stack: Stack) -> processes.State:
    found = processes.read_state(Layout(stack.root).stack_file)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def own_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project of its own: its stack may be broken at will."""
    root = tmp_path_factory.mktemp("project")
    yield root
    embedded.down(root)


@pytest.fixture
def own(own_root: Path) -> Stack:
    return embedded.up(own_root, QUIET)


def test_a_second_up_reuses_what_runs(stack: Stack) -> None:
    before = recorded(stack)
    assert embedded.up(stack.root, QUIET) == stack
    assert recorded(stack) == before
    assert embedded.current(stack.root) == stack


@pytest.mark.parametrize("listener", ["plain", "tls", "sasl plain", "sasl scram"])
def test_every_listener_accepts_its_clients(stack: Stack, listener: str) -> None:
    admin = AdminClient(client_settings(stack, listener))
    assert admin.list_topics(timeout=DEADLINE_S).cluster_id == recorded(stack).cluster_id


@pytest.mark.parametrize("listener", ["sasl plain", "sasl scram"])
def test_a_wrong_password_is_refused(stack: Stack, listener: str) -> None:
    admin = AdminClient(client_settings(replace(stack, sasl_password="wrong"), listener) | {"log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def client_settings(stack: Stack, listener: str) -> dict[str, str | int | float | bool]:
    if listener == "plain":
        return {"bootstrap.servers": stack.bootstrap_servers}
    tls: dict[str, str | int | float | bool] = {"ssl.ca.location": str(stack.ca_file)}
    if listener == "tls":
        return tls | {"bootstrap.servers": stack.ssl_bootstrap_servers, "security.protocol": "SSL"}
    return tls | {
        "bootstrap.servers": stack.sasl_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN" if listener == "sasl plain" else "SCRAM-SHA-512",
        "sasl.username": stack.sasl_user,
        "sasl.password": stack.sasl_password,
    }


def test_an_incompatible_schema_is_refused_from_the_start(stack: Stack) -> None:
    registry = SchemaRegistryClient({"url": stack.registry_url})
    registry.register_schema("compatibility-value", Schema('"string"', "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema("compatibility-value", Schema('"long"', "AVRO"))
    assert refused.value.http_status_code == 409


def test_the_lake_has_its_bucket(stack: Stack) -> None:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": stack.region}
    buckets = boto3.client("s3", endpoint_url=stack.aws_endpoint, **keys).list_buckets()["Buckets"]
    assert stack.bucket in [bucket["Name"] for bucket in buckets]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the listening sockets from /proc")
def test_nothing_listens_beyond_loopback(stack: Stack) -> None:
    addresses = {
        address for process in recorded(stack).processes.values() for address in listening(process.pid)
    }
    assert len(addresses) == 6
    assert all(is_loopback(address) for address in addresses), addresses


def listening(pid: int) -> set[str]:
    """Hexadecimal `address:port` of every listening socket of a process (man 5 proc: /proc/net/tcp)."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
    ]
    return {row[1] for row in rows if row[3] == "0A" and row[9] in sockets}


def is_loopback(address: str) -> bool:
    """IPv4 127.0.0.1, plain or within IPv6, in the kernel's byte order."""
    return address.split(":")[0] in ("0100007F", "0000000000000000FFFF00000100007F")


def test_a_child_gets_an_environment_that_reaches_only_this_stack(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("SPARK_HOME", "/opt/another-spark")
    child = embedded.environment(stack)
    assert "AWS_PROFILE" not in child
    assert "SPARK_HOME" not in child
    assert child["AWS_ENDPOINT_URL"] == stack.aws_endpoint
    java = subprocess.run([f"{child['JAVA_HOME']}/bin/java", "-version"], env=child, capture_output=True)
    assert java.returncode == 0


@pytest.mark.long
def test_the_broker_and_the_registry_keep_their_data_over_a_restart(own: Stack) -> None:
    admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result()
    producer = Producer({"bootstrap.servers": own.bootstrap_servers})
    producer.produce("kept", b"value")
    assert producer.flush(DEADLINE_S) == 0
    registry = SchemaRegistryClient({"url": own.registry_url})
    schema_id = registry.register_schema("kept-value", Schema('"string"', "AVRO"))

    outages.restart(own, "kafka")
    outages.stop(own, "registry")
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(own.registry_url, timeout=2)
    outages.start(own, "registry")

    assert registry.get_schema(schema_id).schema_str == '"string"'
    assert "kept" in AdminClient({"bootstrap.servers": own.bootstrap_servers}).list_topics(timeout=10).topics
    assert embedded.up(own.root, QUIET) == own


@pytest.mark.long
def test_a_paused_server_accepts_and_never_answers(own: Stack) -> None:
    outages.pause(own, "aws")
    try:
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(own.aws_endpoint, timeout=1)
    finally:
        outages.resume(own, "aws")
    with urllib.request.urlopen(f"{own.aws_endpoint}/_ministack/health", timeout=DEADLINE_S) as answer:
        assert answer.status == 200


@pytest.mark.full
def test_the_remains_of_a_killed_run_are_cleaned_all_of_them_together(own: Stack) -> None:
    AdminClient({"bootstrap.servers": own.bootstrap_servers}).list_topics(timeout=10)
    before = recorded(own)
    os.killpg(before.processes["aws"].pid, signal.SIGKILL)
    wait_for(lambda: not processes.alive(before.processes["aws"]))
    assert embedded.current(own.root) is None

    healed = embedded.up(own.root, QUIET)

    assert recorded(healed).cluster_id != before.cluster_id
    assert not any(processes.alive(process) for process in before.processes.values())
    assert all(embedded.health(recorded(healed)).values())
    assert (
        "kept"
        not in AdminClient({"bootstrap.servers": healed.bootstrap_servers}).list_topics(timeout=10).topics
    )


@pytest.mark.full
def test_a_start_that_was_killed_before_its_end_is_not_taken_for_a_stack(own: Stack) -> None:
    before = recorded(own)
    processes.write_state(Layout(own.root).stack_file, replace(before, ready=False))
    anew = embedded.up(own.root, QUIET)
    assert recorded(anew).cluster_id != before.cluster_id
    assert not any(processes.alive(process) for process in before.processes.values())


def test_down_leaves_no_process_and_no_data(own: Stack) -> None:
    before = recorded(own)
    assert embedded.down(own.root)
    assert not any(processes.alive(process) for process in before.processes.values())
    for port in before.ports.values():
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert not Layout(own.root).run.exists()
    assert not embedded.down(own.root)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_up_that_is_interrupted_leaves_nothing_running(own_root: Path, number: signal.Signals) -> None:
    embedded.down(own_root)
    command = [str(Path(sys.executable).with_name("calve")), "up"]

    def heed() -> None:  # whoever runs the tests in the background has signals ignored
        signal.signal(number, signal.SIG_DFL)

    up = subprocess.Popen(
        command, cwd=own_root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heed
    )
    found: dict[str, processes.Process] = {}

    def two_servers_run() -> bool:
        if (now := processes.read_state(Layout(own_root).stack_file)) is not None:
            found.update(now.processes)
        return len(found) >= 2

    wait_for(two_servers_run)
    up.send_signal(number)
    assert up.wait(DEADLINE_S) != 0
    assert not any(processes.alive(process) for process in found.values())
    assert not Layout(own_root).stack_file.exists()
