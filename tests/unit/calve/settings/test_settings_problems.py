"""What cannot be used is refused, all of it at once, with the line, the reason and the cure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.engine_choice import MODES
from calve.config.job import Kafka, Registry
from calve.errors import ConfigError
from calve.settings import load
from calve.settings.resolving import StackDefaults

STACK = StackDefaults(Kafka("127.0.0.1:9092"), Registry("http://127.0.0.1:8081"), "s3://lake")
TABLES = "tables: {a: {topic: t}}\n"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(text: str, *, stack: StackDefaults | None = STACK, env: str | None = None) -> str:
    path = Path("calve.yaml")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, stack=stack, env=env)
    return str(caught.value)


def refused_table(options: str) -> str:
    return refused(f"name: t\ntables: {{a: {{topic: t, {options}}}}}")


def test_every_problem_is_listed_at_once_with_line_key_reason_and_cure() -> None:
    assert (
        refused(
            """name: trading
kafka:
  bootstrap_servers: localhost
  auth: {type: sasl_plan}
tables:
  trades:
    topic: stock trades
    freshnes: 60s
    start: earlist
  users:
    event_time: _kafka.timestamp
""",
        )
        == """calve.yaml: 7 problems
  calve.yaml:3   kafka.bootstrap_servers  "localhost" is not a server. Write host:port, several of them separated by commas
  calve.yaml:4   kafka.auth.type          "sasl_plan" cannot be used. Did you mean "sasl_plain"? """
        """Use none, tls, sasl_plain, sasl_scram, msk_iam or mtls
  calve.yaml:7   tables.trades.topic      "stock trades" is not a topic name: use A-Z, a-z, 0-9, ".", "_" and "-" (at most 249)
  calve.yaml:8   tables.trades.freshnes   is not a known key. Did you mean "freshness"?
  calve.yaml:9   tables.trades.start      "earlist" is not a starting point. Did you mean "earliest"?
  calve.yaml:10  tables.users.topic       is missing. Add `topic:`
  calve.yaml:11  tables.users.event_time  "_kafka.timestamp" is reserved: """
        """_kafka holds topic, partition, offset and the other facts of the record"""
    )


def test_problems_of_an_overlay_name_its_own_file() -> None:
    Path("calve.prod.yaml").write_text("\ntables:\n  a: {gaps: alow}\n")
    message = refused("name: T\n" + TABLES, env="prod")
    assert "calve.yaml:1       name" in message
    assert 'calve.prod.yaml:3  tables.a.gaps  "alow" cannot be used. Did you mean "allow"?' in message


@pytest.mark.parametrize("key", ["flink", "msk"])
def test_keys_of_no_meaning_are_refused(key: str) -> None:
    assert f"{key}  is not a known key. Known here: name, kafka" in refused(
        f"name: t\n{key}: {{}}\n" + TABLES
    )


@pytest.mark.parametrize("option", ["mode: upsert", "sink: []", "keep: null"])
def test_options_of_no_meaning_are_refused_even_when_they_are_empty(option: str) -> None:
    assert "is not a known key. Known here: topic, topics, job" in refused_table(option)


def test_a_file_that_is_absent_or_unreadable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml does not exist"):
        load(Path("nowhere.yaml"))
    Path("folder").mkdir()
    with pytest.raises(ConfigError, match="folder cannot be read: Is a directory"):
        load(Path("folder"))
    Path("latin.yaml").write_bytes(b"name: \xe4")
    with pytest.raises(ConfigError, match="is not UTF-8 text: byte 6"):
        load(Path("latin.yaml"))


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "{}"])
def test_an_empty_file_is_named(text: str) -> None:
    assert refused(text).startswith("calve.yaml is empty\n  Fix: ")


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("name: t\ntables:\n\ta: {}\n", ":3", "a tab is used for indentation. Indent with spaces"),
        ("name: [t\ntables: x", ":2", "is not YAML: "),
        ("name: 'x\n", ":2", "is not YAML: "),
        ("name: x\n---\nname: y\n", ":2", "is not YAML: but found another document"),
        ("name: *x\n", ":1", "is not YAML: found undefined alias 'x'"),
        ("name: \x07\n", "", "is not YAML: "),
        ("- a\n- b\n", ":1", "must be a mapping of keys to values"),
        ("just text\n", ":1", "must be a mapping of keys to values"),
        ("? [a]\n: b\n", ":1", "a key must be plain text"),
        ("name: !!binary aGk=\n", ":1", "cannot be used here"),
        ("name: !!int x\n", ":1", "cannot be used here"),
        ("name: t\njobs: &j {a: *j}\n", ":2", "an alias refers to the mapping or list that contains it"),
    ],
)
def test_what_is_no_usable_yaml_is_refused_with_its_line(text: str, place: str, reason: str) -> None:
    lines = refused(text).splitlines()
    assert any(line.startswith(f"  calve.yaml{place} ") and reason in line for line in lines), lines


def test_a_key_given_twice_is_refused_with_both_lines() -> None:
    message = refused("name: t\ntables:\n  a: {topic: t}\n  b: {topic: t}\n  a: {topic: u}\n")
    assert "calve.yaml:5  tables.a  is given twice; the first one is in line 3" in message


def test_names_that_differ_only_by_case_are_refused() -> None:
    message = refused("name: t\ntables:\n  trades: {topic: t}\n  Trades: {topic: t}\n")
    assert 'calve.yaml:4  tables.Trades  differs from "trades" only by case' in message


def test_the_name_of_a_dead_letter_table_is_refused() -> None:
    message = refused("name: t\ntables: {a: {topic: t}, a__dead_letters: {topic: t}}")
    assert 'tables.a__dead_letters  "a__dead_letters" ends in __dead_letters, which is reserved' in message


@pytest.mark.parametrize("name", ["Trades", "a-b", "_a", '"a.b"', "ä", '"a b"'])
def test_names_that_are_no_table_names_are_refused(name: str) -> None:
    assert "is not a table name" in refused(f"name: t\ntables: {{{name}: {{topic: t}}}}")


@pytest.mark.parametrize("tables", ["", "tables:", "tables: {}"])
def test_a_configuration_without_tables_is_refused(tables: str) -> None:
    assert "tables" in refused(f"name: t\n{tables}\n")


def test_jobs_and_tables_must_fit_each_other() -> None:
    message = refused(
        "name: t\njobs: {fast: , slow: , idle: }\ntables: {a: {topic: t}, b: {topic: t, job: fats}, c: {topic: t, job: slow}}"
    )
    assert (
        "tables.a.job  is missing: there are several jobs. Add `job: fast`, `job: slow` or `job: idle`"
        in message
    )
    assert 'tables.b.job  "fats" is not a job. Did you mean "fast"?' in message
    assert "jobs.idle     has no table" in message
    assert '"b" is not a job. Use main, or add it to `jobs`' in refused_table("job: b")


def test_parts_that_nobody_names_are_missing() -> None:
    message = refused("name: t\nkafka: null\n" + TABLES, stack=None)
    for part in ("kafka", "registry", "lake.bucket"):
        assert f"{part} " in message
    assert "or start the embedded stack: `calve up`" in message


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            "freshness: 60",
            '.freshness  "60" is not a duration. Write a number and ms, s, m, h or d, such as "60s"',
        ),
        ("freshness: 1:30", '.freshness  "1:30" is not a duration'),
        ("freshness: 60S", '"S" is not a unit. Did you mean "s"?'),
        ("freshness: 0s", '"0s" is not a duration: it must be more than zero'),
        ("freshness: -1s", '"-1s" is not a duration'),
        ("freshness: [1s]", ".freshness  must be text"),
        ("freshness: true", ".freshness  must be text"),
        ("flush_size: 250", '.flush_size  "250" is not a size. Write a number and a unit'),
        ("flush_size: 250mb", '"mb" is not a unit. Did you mean "MB"?'),
        ("flush_size: 0.1B", '"0.1B" is not a size: it must be at least one byte'),
        ("start: {}", ".start  is not a starting point. Use earliest"),
        ("start: {timestamp: 2026-01-01T00:00:00}", "has no time zone"),
        ("start: {timestamp: yesterday}", '"yesterday" is not a timestamp'),
        ("start: {timestamp: 5}", '"5" is not a timestamp'),
        ("start: {timestamp: 2026-01-01T00:00:00Z, offsets: {0: 1}}", "is not a starting point"),
        ("start: {offsets: {a: 1}}", '.start.offsets.a  "a" is not a partition'),
        ("start: {offsets: {0: -1}}", '.start.offsets[0]  "-1" is not an offset'),
        ("start: {offsets: {0: x}}", '.start.offsets[0]  "x" is not an offset'),
        ("start: 5", ".start  is not a starting point"),
        ("on_error: ignore", '.on_error  "ignore" cannot be used. Use dead_letter, skip or suspend'),
        (
            "on_error: suspend, dead_letter_budget: {records: 5}",
            ".dead_letter_budget  has no use with `on_error: suspend`. Remove it",
        ),
        ("dead_letter_budget: 5", ".dead_letter_budget  must be a mapping"),
        (
            "dead_letter_budget: {share: 0.01}",
            '.dead_letter_budget.share  "0.01" is not a share. Write it as a',
        ),
        ("dead_letter_budget: {share: 101%}", '.dead_letter_budget.share  "101%" is more than all'),
        ("dead_letter_budget: {share: [1%]}", ".dead_letter_budget.share  must be text"),
        ("dead_letter_budget: {records: -1}", ".dead_letter_budget.records  -1 is too small"),
        ("dead_letter_budget: {within: 60}", '.dead_letter_budget.within  "60" is not a duration'),
        ("dead_letter_budget: {percent: 1%}", ".dead_letter_budget.percent  is not a known key"),
        ("on_data_loss: [x]", ".on_data_loss  must be suspend or continue"),
        ("format_version: 4", '.format_version  "4" cannot be used. Use 2 or 3'),
        ('format_version: "2"', '.format_version  "2" cannot be used'),
        ("event_time: a..b", ".event_time"),
        ("event_time: 5", ".event_time  must be text. Put it in quotes"),
        ("partition_by: symbol", ".partition_by  must be a list"),
        ("partition_by: [days(ts)]", '.partition_by[0]  "days" is not a transform. Did you mean "day"?'),
        ("partition_by: [x, rm(y)]", '.partition_by[1]  "rm" is not a transform. Use year'),
        ('partition_by: ["bucket(id, 16)"]', 'needs a number and a column. Write "bucket(16, column)"'),
        ('partition_by: ["bucket(0, id)"]', "0 is out of range"),
        ('partition_by: ["truncate(2147483648, id)"]', "2147483648 is out of range"),
        ('partition_by: ["day(a, b)"]', '"day(a, b)" takes one column'),
        ("partition_by: [price desc]", '"price desc" is not a field path'),
        ("partition_by: [day(ts), hour(ts)]", '.partition_by[1]  "ts" is used like this in [0] already'),
        ('partition_by: ["bucket(2, x)", "bucket(3, X)"]', '.partition_by[1]  "X" is used like this'),
        ("partition_by: [_kafka.timestmp]", 'is not a column. Did you mean "_kafka.timestamp"?'),
        ("partition_by: [5]", ".partition_by[0]  must be text"),
        ("sort_by: [price dsc]", '.sort_by[0]  "dsc" is not a sort direction. Did you mean "desc"?'),
        ("sort_by: [price desc, price]", '.sort_by[1]  "price" is used like this'),
        ("sort_by: ['']", ".sort_by[0]  must be text"),
        ("job: []", ".job  must be text"),
        (
            "steps: [{lookup: {table: b, on: {id: id}, columns: [c, {d: e}]}}]",
            ".steps[0].lookup.columns[1]  must be text. Write the name of a column",
        ),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: str, problem: str) -> None:
    assert problem in refused_table(options)


@pytest.mark.parametrize(
    ("auth", "problem"),
    [
        ("{type: kerberos}", '.auth.type    "kerberos" cannot be used. Use none'),
        ("{type: sasl_plain}", ".auth.secret  is missing: sasl_plain needs it"),
        ("{type: mtls}", ".auth.secret  is missing: mtls needs it"),
        ("{type: msk_iam, secret: env:K}", ".auth.secret  has no use with msk_iam"),
        ("{type: tls, mechanism: SCRAM-SHA-256}", ".auth.mechanism  has no use with tls"),
        ("{type: sasl_scram, secret: env:K, mechanism: scram-sha-256}", 'Did you mean "SCRAM-SHA-256"?'),
        ("{type: none, tls: true}", ".auth.tls  has no use with none. Remove it; `type: tls` encrypts"),
        ("{type: tls, tls: yes}", ".auth.tls  must be true or false"),
        ("{ca_file: x}", ".auth.ca_file  has no use without TLS"),
        ("{type: tls, ca_file: no.pem}", '.auth.ca_file  "no.pem" does not exist'),
        ("secret", ".auth  must be a mapping"),
    ],
)
def test_authentication_that_cannot_work_is_refused(auth: str, problem: str) -> None:
    message = refused(f"name: t\nkafka: {{bootstrap_servers: b:1, auth: {auth}}}\n" + TABLES)
    assert problem.replace("type    ", "type  ") in message


def test_all_contradictions_of_an_authentication_are_listed() -> None:
    auth = "{type: tls, secret: env:K, mechanism: SCRAM-SHA-256, tls: false}"
    assert (
        refused(f"name: t\nkafka: {{bootstrap_servers: b:1, auth: {auth}}}\n{TABLES}").count("has no use")
        == 3
    )


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("name: Trading", "name  "),
        ("name: 5", "name  must be text"),
        ("kafka: {bootstrap_servers: 'SSL://b:1'}", '"SSL://b:1" is not a server'),
        ("kafka: {bootstrap_servers: 'b:1,b:70000'}", '"b:70000" is not a server'),
        ("kafka: {bootstrap_servers: [b:1]}", "kafka.bootstrap_servers  must be text"),
        ("kafka: {}", "kafka.bootstrap_servers  is missing"),
        ("registry: {url: registry}", '"registry" is not a URL'),
        ('registry: {url: "https://registry:port"}', '"https://registry:port" is not a URL'),
        ("registry: {type: glue, url: http://r}", "registry.url   has no use with `type: glue`"),
        ("registry: {type: glue}", "registry.name  is missing"),
        ("registry: {type: confluent}", "registry.url  is missing"),
        (
            "registry: {url: http://r, region: eu-west-1}",
            "registry.region  has no use with `type: confluent`",
        ),
        ("registry: {type: apicurio, url: http://r}", 'registry.type  "apicurio" cannot be used'),
        ("registry: {url: https://r, oauth: {token_url: https://t}}", "registry.secret  is missing: oauth"),
        ("registry: {url: https://r, secret: env:R, oauth: {}}", "registry.oauth.token_url  is missing"),
        ("registry: {url: http://r, client_certificate: env:R}", "has no use without https"),
        ("registry: {url: http://r, ca_file: no.pem}", '"no.pem" does not exist'),
        ("lake: {bucket: My_Lake}", '"My_Lake" is not a bucket name'),
        ("lake: {prefix: /a}", '"/a" is not a prefix'),
        ("lake: {prefix: ../../x}", '"../../x" is not a prefix'),
        ("lake: {prefix: a/./b}", '"a/./b" is not a prefix'),
        ("lake: {prefix: a/..}", '"a/.." is not a prefix'),
        ("lake: {prefix: a//b}", '"a//b" is not a prefix'),
        ("lake: {prefix: a/*}", '"a/*" is not a prefix'),
        ("lake: {database: Raw}", '"Raw" is not a database name'),
        ("lake: {namespace: cluster}", 'Did you mean "cluster_id"?'),
        ("lake: {cluster_ids: [lkc-1]}", "lake.cluster_ids  has no use"),
        ("lake: {namespace: cluster_id, cluster_ids: []}", "lake.cluster_ids  "),
        ("lake: {namespace: cluster_id, cluster_ids: ['*']}", '"*" is not a cluster id'),
        ("lake: {namespace: cluster_id, cluster_ids: [a, A]}", '"A" is named twice'),
        ("lake: {region: europe}", '"europe" is not a region'),
        ("jobs: {A: }", '"A" is not a job name'),
        ("jobs: [main]", "jobs  must be a mapping"),
        ("defaults: {topic: t}", "defaults.topic  is not a known key"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused(section: str, problem: str) -> None:
    name = "" if section.startswith("name") else "name: t\n"
    assert problem in refused(f"{name}{section}\n{TABLES}")


@pytest.mark.parametrize(
    "text",
    [
        "kafka: {bootstrap_servers: b:1, auth: {type: sasl_plain, secret: hunter2}}",
        "kafka: {bootstrap_servers: b:1, auth: {type: sasl_plain, secret: [hunter2]}}",
        "kafka: {bootstrap_servers: b:1, auth: {type: sasl_plain, password: hunter2}}",
        "registry: {url: 'https://user:hunter2@registry'}",
        "registry: {url: https://registry, secret: {password: hunter2}}",
    ],
)
def test_a_secret_written_into_the_file_is_refused_and_not_repeated(text: str) -> None:
    assert "hunter2" not in refused(f"name: t\n{text}\n{TABLES}")


sections = ["name", "kafka", "auth", "registry", "lake", "jobs", "defaults", "tables", "a"]
options = ["topic", "job", "start", "offsets", "timestamp", "0", "partition_by", "sort_by", "event_time"]
keys = st.sampled_from([*sections, *options, "bootstrap_servers", "url", "secret"])
scalars = st.none() | st.booleans() | st.integers() | st.text("ab0. :-(),", max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3)
)


@given(st.dictionaries(keys, values))
def test_whatever_stands_in_the_file_is_loaded_or_refused_with_a_reason(
    configuration: dict[str, object],
) -> None:
    path, reasons = Path("any.yaml"), []
    path.write_text(json.dumps(configuration), encoding="utf-8")
    try:
        load(path, stack=STACK)
    except ConfigError as error:
        reasons.append(str(error))
    assert all(reasons)


def test_rows_leave_for_their_age_only_where_each_record_is_one() -> None:
    rows = "maintenance: {rows: {column: at, keep: 90d}}"
    sections = {"change_data": "{}", "aggregate": "{by: [id], measures: {n: count(*)}}"}
    for mode in MODES:
        found = refused_table(f"{mode}: {sections.get(mode, '{key: [id]}')}, {rows}")
        assert found.startswith("calve.yaml: 1 problem\n")
        assert (
            f"tables.a.maintenance.rows  cannot be used with `{mode}`: rows can only be deleted by age if"
            in found
        )
    Path("calve.yaml").write_text(f"name: t\ntables: {{a: {{topic: t, {rows}}}}}")
    [job] = load(Path("calve.yaml"), stack=STACK)
    assert job.tables[0].maintenance.rows


def test_quarantine_needs_a_mask_that_lets_fields_in() -> None:
    reason = "needs a step `mask` to name the fields to add. Add `mask: {fields: {}}` to its steps, or set"
    assert reason in refused_table("quarantine_new_fields: true")
    assert reason in refused_table("quarantine_new_fields: true, steps: [flatten]")
    assert reason in refused("name: t\ndefaults: {quarantine_new_fields: true}\n" + TABLES)


def test_quarantine_is_an_option_of_every_table_that_masks() -> None:
    Path("calve.yaml").write_text(
        "name: t\nmasking: {secret: env:KEYS}\ndefaults: {quarantine_new_fields: true}\ntables:\n"
        "  a: {topic: t, steps: [{mask: {a: keep}}]}\n  b: {topic: t, quarantine_new_fields: false}\n"
    )
    [job] = load(Path("calve.yaml"), stack=STACK)
    assert [table.quarantine_new_fields for table in job.tables] == [True, False]
    assert type(job).from_json(job.to_json()) == job


def test_the_columnar_engine_is_refused_where_it_cannot_do_what_the_table_asks() -> None:
    beside = "steps: [{lookup: {table: b, on: {id: id}, columns: {c: d}}}]"
    problem = '"columnar" cannot be used: it has the step lookup'
    assert problem in refused_table(f"engine: columnar, {beside}")
    by_default = f"name: t\ndefaults: {{engine: columnar}}\ntables: {{a: {{topic: t, {beside}}}}}\n"
    assert problem in refused(by_default)


def test_the_engine_is_an_option_of_every_table() -> None:
    Path("calve.yaml").write_text(
        "name: t\ndefaults: {engine: columnar}\ntables: {a: {topic: t}, b: {topic: t, engine: rows}}\n"
    )
    [job] = load(Path("calve.yaml"), stack=STACK)
    assert [table.engine for table in job.tables] == ["columnar", "rows"]
    assert type(job).from_json(job.to_json()) == job
