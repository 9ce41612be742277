"""calve.yaml becomes jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from calve.config.job import Budget, GlueRegistry, Job, Kafka, Lake, OAuth, Registry, Source, Start, Table
from calve.errors import ConfigError, Fatal
from calve.names import database_for_cluster
from calve.schema.columns import Transform
from calve.settings import load
from calve.settings.resolving import StackDefaults

STACK = StackDefaults(
    kafka=Kafka("127.0.0.1:9092"),
    registry=Registry("http://127.0.0.1:8081"),
    warehouse="s3://calve-embedded",
    endpoint="http://127.0.0.1:4566",
)
NAMED = """
kafka: {bootstrap_servers: "b1:9092, b2:9092"}
registry: {url: https://registry.example/}
lake: {bucket: my-lake}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str, name: str = "calve.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return _write


def only_table(path: Path) -> Table:
    (job,) = load(path, stack=STACK)
    (table,) = job.tables
    return table


def table_of(write: Write, options: str) -> Table:
    return only_table(write(f"name: trading\ntables:\n  trades: {{topic: t, {options}}}\n"))


def test_the_example_runs_on_the_embedded_stack() -> None:
    (job,) = load(Path(__file__).parents[4] / "calve.yaml", stack=STACK)
    assert (job.name, job.job) == ("trading", "main")
    assert [(table.name, table.topic) for table in job.tables] == [
        ("stock_trades", "stock_trades"),
        ("users", "users"),
    ]
    assert (job.kafka, job.registry) == (STACK.kafka, STACK.registry)
    assert job.lake == Lake("trading", "s3://calve-embedded", endpoint="http://127.0.0.1:4566")


def test_a_table_that_says_nothing_has_the_jobs_own_defaults(write: Write) -> None:
    assert only_table(write("name: trading\ntables: {trades: {topic: t}}")) == Table("trades", "t")


def test_every_option_reaches_the_table(write: Write) -> None:
    path = write(
        """
name: trading
tables:
  trades:
    topic: stock.trades
    event_time: order.created_at
    partition_by: [hour(order.created_at), "bucket(16, userid)", "truncate( 4, symbol )", side]
    sort_by: [price desc, symbol, "bucket(8, userid) asc"]
    freshness: 5m
    flush_size: 64MiB
    partition_flush_size: 1.5GB
    start: {offsets: {0: 12, 1: 0}}
    on_error: skip
    dead_letter_budget: {share: 2.5%, records: 7, within: 30m}
    on_data_loss: continue
    gaps: allow
    format_version: 3
    job: main
"""
    )
    assert only_table(path) == Table(
        name="trades",
        topic="stock.trades",
        freshness_s=300.0,
        flush_bytes=64 * 1024**2,
        partition_flush_bytes=1_500_000_000,
        start=Start("offsets", offsets={0: 12, 1: 0}),
        event_time="order.created_at",
        partition_by=(
            Transform("order.created_at", "hour"),
            Transform("userid", "bucket", 16),
            Transform("symbol", "truncate", 4),
            Transform("side"),
        ),
        sort_by=(
            Transform("price", descending=True),
            Transform("symbol"),
            Transform("userid", "bucket", 8),
        ),
        format_version=3,
        on_error="skip",
        dead_letter_budget=Budget(0.025, 7, 1800.0),
        on_data_loss="continue",
        gaps="allow",
    )


def test_resolved_jobs_survive_their_way_as_json(write: Write) -> None:
    path = write(
        NAMED + "name: t\ntables: {a: {topic: t, start: {offsets: {3: 4}}, event_time: x, sort_by: [y desc]}}"
    )
    (job,) = load(path)
    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("registry", "found"),
    [
        ("{type: glue, name: company}", GlueRegistry("company", "eu-west-1")),
        ("{type: glue, name: company, region: us-east-2}", GlueRegistry("company", "us-east-2")),
        (
            "{url: https://r, secret: aws:r, oauth: {token_url: https://t/token, scope: a b, cluster: lsrc-1}}",
            Registry("https://r", "aws:r", oauth=OAuth("https://t/token", "a b", "lsrc-1")),
        ),
        ("{url: https://r, client_certificate: aws:c}", Registry("https://r", client_certificate="aws:c")),
    ],
)
def test_registries_of_both_kinds_survive_their_way_as_json(
    write: Write, registry: str, found: object
) -> None:
    lake = "lake: {bucket: b-1, region: eu-west-1}"
    path = write(
        f"name: t\nkafka: {{bootstrap_servers: 'b:1'}}\nregistry: {registry}\n{lake}\ntables: {{a: {{topic: t}}}}"
    )
    (job,) = load(path)
    assert job.registry == found
    assert Job.from_json(job.to_json()) == job


def test_a_table_names_its_subjects(write: Write) -> None:
    table = table_of(write, 'value: {subject: "com.acme.*"}')
    assert table.value == Source("com.acme.*")
    assert table_of(write, "freshness: 60s").value == Source()


def test_a_table_is_partitioned_by_the_day_of_its_event_time(write: Write) -> None:
    assert table_of(write, "event_time: created_at").partition_by == (Transform("created_at", "day"),)
    assert table_of(write, "event_time: created_at, partition_by: []").partition_by == ()
    assert table_of(write, "event_time: null").partition_by == ()


def test_the_facts_of_the_record_can_partition_and_sort_a_table(write: Write) -> None:
    table = table_of(write, "partition_by: [hour(_kafka.timestamp)], sort_by: [_kafka.offset]")
    assert table.partition_by == (Transform("_kafka.timestamp", "hour"),)
    assert table.sort_by == (Transform("_kafka.offset"),)


def test_a_budget_is_completed_key_by_key(write: Write) -> None:
    path = write(
        NAMED + "name: t\ndefaults: {dead_letter_budget: {records: 5, within: 2h}}\n"
        "tables: {a: {topic: t}, b: {topic: t, dead_letter_budget: {records: 0, share: 100%}}}"
    )
    (job,) = load(path)
    assert [each.dead_letter_budget for each in job.tables] == [
        Budget(0.01, 5, 7200.0),
        Budget(1.0, 0, 7200.0),
    ]
    assert Job.from_json(job.to_json()) == job


def test_a_job_of_an_older_release_has_the_default_budget() -> None:
    job = Job("t", "main", Kafka("b:1"), Registry("http://r"), Lake("t", "s3://l"), (Table("a", "t"),))
    raw = json.loads(job.to_json())
    del raw["tables"][0]["dead_letter_budget"]
    assert Job.from_json(json.dumps(raw)) == job


def test_defaults_hold_for_tables_that_do_not_say_otherwise(write: Write) -> None:
    path = write(
        "name: trading\ndefaults: {freshness: 1h, gaps: allow}\n"
        "tables: {a: {topic: t}, b: {topic: t, freshness: 1s, gaps: detect}}"
    )
    (job,) = load(path, stack=STACK)
    assert [(table.freshness_s, table.gaps) for table in job.tables] == [(3600.0, "allow"), (1.0, "detect")]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("60s", 60.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86400.0), ("500ms", 0.5), ("1 s", 1.0)],
)
def test_durations_have_units(write: Write, written: str, seconds: float) -> None:
    assert table_of(write, f"freshness: {written}").freshness_s == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [("250MB", 250_000_000), ("64MiB", 67_108_864), ("1kB", 1000), ("1 KiB", 1024), ("9B", 9)],
)
def test_sizes_have_units(write: Write, written: str, size: int) -> None:
    assert table_of(write, f"flush_size: {written}").flush_bytes == size


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("earliest", Start("earliest")),
        ("latest", Start("latest")),
        ("{timestamp: 2026-01-01T00:00:00Z}", Start("timestamp", timestamp_ms=1_767_225_600_000)),
        ("{timestamp: '2026-01-01T02:00:00.250+02:00'}", Start("timestamp", timestamp_ms=1_767_225_600_250)),
        ("{offsets: {0: 12, 11: 9223372036854775807}}", Start("offsets", offsets={0: 12, 11: 2**63 - 1})),
    ],
)
def test_a_table_can_begin_anywhere(write: Write, written: str, start: Start) -> None:
    assert table_of(write, f"start: {written}").start == start


def test_named_servers_replace_the_stacks(write: Write) -> None:
    (job,) = load(write(NAMED + "name: my-trading\ntables: {a: {topic: t}}"), stack=STACK)
    assert job.kafka == Kafka("b1:9092,b2:9092")
    assert job.registry == Registry("https://registry.example")
    assert job.lake == Lake("my_trading", "s3://my-lake")


def test_a_lake_is_described_in_full(write: Write) -> None:
    lake = "lake: {database: raw, namespace: cluster_id, bucket: b-1, prefix: a/b, region: eu-west-1, kms_key: arn:x}"
    (job,) = load(write(f"name: t\n{lake}\ntables: {{a: {{topic: t}}}}"), stack=STACK)
    assert job.lake == Lake("raw", "s3://b-1/a/b", "cluster_id", "eu-west-1", kms_key="arn:x", names_key=True)


def test_only_clusters_that_are_named_have_a_database(write: Write) -> None:
    lake = "lake: {namespace: cluster_id, cluster_ids: [lkc-1, MkU3-A]}"
    (job,) = load(write(f"name: t\n{lake}\ntables: {{a: {{topic: t}}}}"), stack=STACK)
    assert job.database(database_for_cluster("MkU3-A")) == "mku3-a"
    with pytest.raises(Fatal, match="the Kafka cluster lkc-2 is none of"):
        job.database("lkc-2")
    assert replace(job, lake=replace(job.lake, cluster_ids=())).database("lkc-2") == "lkc-2"


def test_a_prefix_goes_into_the_stacks_bucket_too(write: Write) -> None:
    (job,) = load(write("name: t\nlake: {prefix: raw, bucket: null}\ntables: {a: {topic: t}}"), stack=STACK)
    assert job.lake.warehouse == "s3://calve-embedded/raw"


@pytest.mark.parametrize(
    ("auth", "kafka"),
    [
        ("{}", Kafka("b:1")),
        ("{type: tls}", Kafka("b:1", "tls", tls=True)),
        ("{type: msk_iam}", Kafka("b:1", "msk_iam", tls=True)),
        ("{type: mtls, secret: aws:id}", Kafka("b:1", "mtls", tls=True, secret="aws:id")),
        ("{type: sasl_plain, secret: env:K}", Kafka("b:1", "sasl_plain", tls=True, secret="env:K")),
        (
            "{type: sasl_plain, secret: env:K, tls: false}",
            Kafka("b:1", "sasl_plain", tls=False, secret="env:K"),
        ),
        (
            "{type: sasl_scram, secret: env:K}",
            Kafka("b:1", "sasl_scram", "SCRAM-SHA-512", tls=True, secret="env:K"),
        ),
        (
            "{type: sasl_scram, secret: env:K, mechanism: SCRAM-SHA-256}",
            Kafka("b:1", "sasl_scram", "SCRAM-SHA-256", tls=True, secret="env:K"),
        ),
    ],
)
def test_every_kind_of_authentication_is_one_setting(write: Write, auth: str, kafka: Kafka) -> None:
    text = f"name: t\nkafka: {{bootstrap_servers: b:1, auth: {auth}}}\ntables: {{a: {{topic: t}}}}"
    assert load(write(text), stack=STACK)[0].kafka == kafka


def test_files_are_found_beside_calve_yaml(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("pem", "ca.pem")
    path = write(
        "name: t\nkafka: {bootstrap_servers: b:1, auth: {type: sasl_plain, secret: file:s.json, ca_file: ca.pem}}\n"
        "tables: {a: {topic: t}}"
    )
    monkeypatch.chdir("/")
    kafka = load(path, stack=STACK)[0].kafka
    assert kafka.ca_file == str(tmp_path.resolve() / "ca.pem")
    assert kafka.secret == f"file:{tmp_path.resolve() / 's.json'}"


def test_each_job_has_its_tables(write: Write) -> None:
    path = write(
        "name: t\njobs: {fast: {}, slow: }\n"
        "tables: {a: {topic: t, job: slow}, b: {topic: t, job: fast}, c: {topic: u, job: slow}}"
    )
    jobs = load(path, stack=STACK)
    assert {job.job: [table.name for table in job.tables] for job in jobs} == {
        "fast": ["b"],
        "slow": ["a", "c"],
    }


def test_an_only_job_keeps_its_name_and_gets_every_table(write: Write) -> None:
    (job,) = load(write("name: t\njobs: {nightly: }\ntables: {a: {topic: t}, b: {topic: t}}"), stack=STACK)
    assert (job.job, len(job.tables)) == ("nightly", 2)


def test_an_overlay_changes_what_it_names_and_keeps_the_rest(write: Write) -> None:
    path = write(NAMED + "name: t\ntables: {a: {topic: t, freshness: 5m, sort_by: [x, y]}, b: {topic: u}}")
    write(
        "lake: {bucket: other, prefix: p}\nregistry: null\ntables: {a: {sort_by: [z]}, c: {topic: v}}",
        "calve.prod.yaml",
    )
    (job,) = load(path, env="prod", stack=STACK)
    assert job.lake.warehouse == "s3://other/p"
    assert job.registry == STACK.registry
    assert [table.name for table in job.tables] == ["a", "b", "c"]
    assert job.tables[0] == Table("a", "t", freshness_s=300.0, sort_by=(Transform("z"),))


def test_an_overlay_of_comments_changes_nothing(write: Write) -> None:
    path = write(NAMED + "name: t\ntables: {a: {topic: t}}")
    write("# nothing yet\n", "calve.dev.yaml")
    assert load(path, env="dev") == load(path)


def test_an_absent_overlay_is_named(write: Write) -> None:
    path = write(NAMED + "name: t\ntables: {a: {topic: t}}")
    with pytest.raises(ConfigError, match=r"calve\.prod\.yaml does not exist"):
        load(path, env="prod")


def test_words_that_older_yaml_reads_as_other_types_stay_text(write: Write) -> None:
    table = only_table(write("name: no\ntables: {on: {topic: 2026-01-01, event_time: yes}}"))
    assert (table.name, table.topic, table.event_time) == ("on", "2026-01-01", "yes")


def test_an_alias_stands_for_what_it_names(write: Write) -> None:
    (job,) = load(write("name: t\ntables: {a: &a {topic: t, gaps: allow}, b: *a}"), stack=STACK)
    assert [(table.name, table.gaps) for table in job.tables] == [("a", "allow"), ("b", "allow")]
