"""`value` and `key` of a table: what reaches the job, what contradicts itself, and schema files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from calve.config.job import Job, Kafka, Registry, Source
from calve.config.steps import Expect, Filter
from calve.errors import ConfigError
from calve.modes.aggregate import Aggregate, Measure, Window
from calve.modes.history import History
from calve.modes.upsert import ChangeData, Deduplicate, Upsert
from calve.schema.columns import Transform
from calve.schema.inference import Infer
from calve.settings import load, load_deployment
from calve.settings.resolving import StackDefaults
from calve.stored import from_plain

WITHOUT_REGISTRY = StackDefaults(Kafka("127.0.0.1:9092"), None, "s3://lake")
STACK = StackDefaults(Kafka("127.0.0.1:9092"), Registry("http://127.0.0.1:8081"), "s3://lake")
AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
JSON = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.fixture(autouse=True)
def _in_a_folder_with_schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schemas").mkdir()
    Path("schemas/a.avsc").write_text(AVRO)
    Path("schemas/a.json").write_text(JSON)
    Path("schemas/a.proto").write_text('syntax = "proto3"; message A { int32 a = 1; }')
    Path("schemas/long.avsc").write_text('"long"')
    Path("schemas/broken.avsc").write_text("{")
    Path("schemas/row.json").write_text(struct(a="int32"))
    Path("schemas/typo.json").write_text(struct(a="integer"))
    Path("schemas/pairs.json").write_text(struct(m="map"))
    Path("schemas/day.json").write_text('{"type": "int32", "optional": false}')
    Path("schemas/latin.json").write_bytes(b'{"title": "\xe9"}')


def struct(**fields: str) -> str:
    """A schema of Kafka Connect's."""
    listed = [{"field": name, "type": kind, "optional": False} for name, kind in fields.items()]
    return json.dumps({"type": "struct", "fields": listed, "optional": False})


def loaded(*tables: str, stack: StackDefaults = WITHOUT_REGISTRY) -> Job:
    path = Path("calve.yaml")
    lines = [f"  t{n}: {{topic: t, {each}}}" for n, each in enumerate(tables)]
    path.write_text("\n".join(["name: t", "tables:", *lines]) + "\n")
    (job,) = load(path, stack=stack)
    return job


def refused(*tables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(*tables, stack=STACK)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("", Source()),
        ("value: {subject: s}", Source(subject="s")),
        ("value: {message: acme.Order}", Source(message="acme.Order")),
        ("value: {prefix: none}", Source(prefix="none")),
        ("value: {format: string}", Source(format="string", prefix="none")),
        ("value: {format: bytes, column: raw}", Source(format="bytes", prefix="none", column="raw")),
        (
            "value: {format: avro, schema: schemas/a.avsc}",
            Source(format="avro", prefix="none", schema=AVRO),
        ),
        (
            "value: {format: json, prefix: none, schema: schemas/a.json, rest: more}",
            Source(format="json", prefix="none", schema=JSON, rest="more"),
        ),
        (
            "value: {format: json, schema: schemas/row.json}, key: {format: json, schema: schemas/day.json}",
            Source(format="json", prefix="none", schema=struct(a="int32")),
        ),
    ],
)
def test_values_are_read_as_stated(written: str, source: Source) -> None:
    job = loaded(written, stack=STACK)
    assert job.tables[0].value == source
    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("key: {}", Source(column="key")),
        ("key: {format: string, column: id}", Source(format="string", prefix="none", column="id")),
        (
            "key: {format: avro, schema: schemas/long.avsc}",
            Source(format="avro", prefix="none", schema='"long"', column="key"),
        ),
    ],
)
def test_keys_are_read_as_stated(written: str, source: Source) -> None:
    job = loaded(written, stack=STACK)
    assert job.tables[0].key == source
    assert Job.from_json(job.to_json()) == job


def test_a_job_of_an_older_release_reads_values_alone() -> None:
    raw = json.loads(loaded("value: {format: string}").to_json())
    del raw["tables"][0]["value"], raw["tables"][0]["key"]
    (table,) = Job.from_json(json.dumps(raw)).tables
    assert (table.value, table.key) == (Source(), None)


def test_no_registry_is_needed_where_no_table_asks_one() -> None:
    job = loaded(
        "value: {format: string}", "value: {format: avro, schema: schemas/a.avsc}, key: {format: bytes}"
    )
    assert job.registry is None
    assert Job.from_json(job.to_json()) == job
    deployed = load_deployment(Path("calve.yaml"), stack=WITHOUT_REGISTRY)
    assert deployed.jobs[0].settings.registry is None


@pytest.mark.parametrize(
    "asking", ["freshness: 1s", "value: {format: string}, key: {}", "value: {prefix: none}"]
)
def test_a_registry_is_needed_where_a_table_asks_one(asking: str) -> None:
    with pytest.raises(ConfigError, match="registry  is missing"):
        loaded("value: {format: string}", asking)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("value: {format: csv}", '.value.format  "csv" cannot be used. Use registry, avro, json'),
        (
            "value: {format: string, subject: s}",
            ".value.subject  has no use with `format: string`: no registry",
        ),
        ("value: {format: avro}", ".value.schema  is missing: `format: avro` needs it"),
        ("value: {schema: a.avsc}", ".value.schema  has no use with `format: registry`. Remove it, or add"),
        ("value: {format: bytes, schema: a.avsc}", ".value.schema  has no use with `format: bytes`"),
        ("value: {format: string, prefix: confluent}", ".value.prefix  has no use with `format: string`"),
        ("value: {rest: more}", ".value.rest  has no use with `format: registry`"),
        (
            "value: {format: avro, schema: schemas/a.avsc, rest: more}",
            ".value.rest  has no use with `format: avro`",
        ),
        (
            "value: {format: string, message: M}",
            ".value.message  has no use with `format: string`: only Prot",
        ),
        (
            "value: {format: protobuf, schema: schemas/a.proto, message: M}",
            '"schemas/a.proto" makes no table: the schema: there is no message "M" in this file',
        ),
        ("value: {column: text}", ".value.column  has no use with `format: registry`"),
        ("value: {format: string, column: a.b}", '.value.column  "a.b" is not a column name'),
        ("value: {format: string, column: _kafka}", '.value.column  "_kafka" is reserved'),
        ("key: {rest: more}", ".key.rest  is not a known key"),
        (
            "key: {column: Value}, value: {format: string}",
            '.key.column  "Value" is the name of another column',
        ),
        (
            "key: {column: more}, value: {format: json, schema: schemas/a.json, rest: more}",
            '.key.column    "more" is the name of another column of the records',
        ),
        ("value: {format: avro, schema: no.avsc}", '.value.schema  "no.avsc" cannot be read: No such file'),
        ("value: {format: avro, schema: schemas}", '.value.schema  "schemas" cannot be read: Is a directory'),
        ("value: {format: json, schema: schemas/latin.json}", "cannot be read: is not UTF-8"),
        (
            "value: {format: avro, schema: schemas/broken.avsc}",
            '"schemas/broken.avsc" makes no table: the schema',
        ),
        ("value: {format: avro, schema: schemas/long.avsc}", "a table needs a record at the top"),
        (
            "value: {format: json, schema: schemas/pairs.json}",
            '"schemas/pairs.json" makes no table: m: a map whose keys are no strings',
        ),
        (
            "value: {format: json, schema: schemas/day.json}",
            '"schemas/day.json" makes no table: the schema: a table needs an object with properties',
        ),
        (
            "value: {format: json, schema: schemas/typo.json}",
            '"schemas/typo.json" makes no table: a: "integer" is no type of Kafka Connect',
        ),
        (
            "value: {format: json, schema: schemas/row.json}, key: {format: string, column: a}",
            "a: calve.yaml gives this name to the column of key",
        ),
        (
            "value: {format: json, schema: schemas/a.json, cloudevents: A}",
            "a: calve.yaml gives this name to the column of cloudevents",
        ),
        (
            "value: {format: json, schema: schemas/a.json, rest: A}",
            "a: calve.yaml gives this name to the column of rest",
        ),
        (
            "value: {format: json, schema: schemas/a.json}, key: {format: string, column: a}",
            "a: calve.yaml gives this name to the column of key",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(options: str, problem: str) -> None:
    assert problem in refused(options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("key: {}", "tables.t0.key.subject  is missing: in a Glue registry the topic's name is that of"),
        ("value: {prefix: confluent}", "tables.t0.value.prefix  has no use with a registry of `type: glue`"),
    ],
)
def test_what_a_glue_registry_does_not_have_is_refused(options: str, problem: str) -> None:
    Path("calve.yaml").write_text(
        f"{{name: t, registry: {{type: glue, name: r}}, tables: {{t0: {{topic: t, {options}}}}}}}"
    )
    with pytest.raises(ConfigError) as caught:
        load(Path("calve.yaml"), stack=STACK)
    assert problem in str(caught.value)


def test_problems_of_files_and_of_keys_are_listed_at_once() -> None:
    message = refused("value: {format: avro, schema: no.avsc}", "value: {subject: 5}", "freshness: x")
    assert "3 problems" in message


@pytest.mark.parametrize(
    ("written", "upsert"),
    [
        ("upsert: {}", Upsert(("_kafka.key",), deletes=True, bucketed=True)),
        (
            "upsert: {key: [id], order_by: _kafka.timestamp}",
            Upsert(("id",), "_kafka.timestamp", bucketed=True),
        ),
        ("key: {format: string, column: user}, upsert: {}", Upsert(("user",), deletes=True, bucketed=True)),
        ("key: {column: of}, upsert: {key: [of.shop]}", Upsert(("of.shop",), deletes=True, bucketed=True)),
        ("key: {column: of}, upsert: {key: [of, id]}", Upsert(("of", "id"), bucketed=True)),
        ("upsert: {}, partition_by: []", Upsert(("_kafka.key",), deletes=True)),
    ],
)
def test_a_table_by_key_deletes_where_the_record_key_is_its_key(written: str, upsert: Upsert) -> None:
    job = loaded(written, stack=STACK)
    assert job.tables[0].upsert == upsert
    assert Job.from_json(job.to_json()) == job


def test_a_table_by_key_is_not_partitioned_by_its_event_time_unless_it_says_so() -> None:
    by_day, by_key, both = loaded(
        "event_time: at",
        "event_time: at, upsert: {}",
        "event_time: at, upsert: {}, partition_by: [day(at)]",
        stack=STACK,
    ).tables
    day = (Transform("at", "day"),)
    assert (by_day.partition_by, by_key.partition_by, both.partition_by) == (day, (), day)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("upsert: {key: []}", "upsert.key"),
        ("upsert: {key: [id, ID]}", '"ID" is named twice'),
        ("upsert: {key: [_kafka.kee]}", "_kafka.key"),
        ("upsert: {order: id}", "order_by"),
        (
            "deduplicate: {keep: last}",
            "a table of the last record of each key is one of upserts. Use `upsert`",
        ),
        ("deduplicate: {keep: frist}", '"frist" cannot be used. Use `first`'),
        ("deduplicate: {window: ever}", "deduplicate.window"),
        ("deduplicate: {window: 0s}", "must be more than zero"),
        ("deduplicate: {}, upsert: {}", "cannot be used together with `upsert`"),
        ("deduplicate: {}, change_data: {}", "cannot be used together with `change_data`"),
        ("change_data: {order_by: [lsn]}", "order_by  needs `deletes: keep`"),
        *(
            (
                f"change_data: {{order_by: [lsn], deletes: keep}}, {leaves_out}",
                "nothing would remember the change",
            )
            for leaves_out in (
                "steps: [filter: id > 5]",
                "steps: [sql: SELECT * FROM source WHERE id > 5]",
                "route: {column: shop, value: eu}",
            )
        ),
        ("history: {}, change_data: {}", "cannot be used together with `change_data`"),
        ("history: {of: cdc}", "history.of"),
        ("history: {of: change_data, order_by: at}", "the time of the change orders the versions"),
        ("history: {order_by: at}, steps: [filter: id > 5]", "those have no such column"),
        ("history: {}, emit: {topic: t2}", "a version that ends is written again"),
        ("upsert: {}, emit: {topic: t2, key: [id]}", "records have the key of the table"),
        ("change_data: {key: [a.id]}, emit: {topic: t2}", "the key names a.id, which is no column"),
        ("history: {}, steps: [flatten: {explode: items}]", "a record is one row that replaces another"),
        ("history: {of: change_data}, value: {format: string}", "Debezium writes Avro or JSON"),
        ("change_data: {}, steps: [flatten: {explode: items}]", "a record is one row that replaces another"),
        ("change_data: {deletes: never}", '"never" cannot be used'),
        ("change_data: {}, value: {format: string}", "Debezium writes Avro or JSON"),
        (
            "change_data: {}, value: {format: json, schema: s.json, rest: more}",
            "has no use with `change_data`",
        ),
        ("expect: [{else: drop}]", "expect[0].that  is missing"),
        ("expect: [{that: id > 0, else: warn}]", '"warn" cannot be used'),
        ("expect: [{that: id > 0, at_least: 101%}]", "expect[0].at_least"),
        ("expect: [{that: id > 0}, {that: id > 0, else: drop}]", "expect[1].that  is expected twice"),
        ("expect: [{that: id > :least}]", "names :least, which is not a parameter of the table"),
        (
            "history: {order_by: at}, expect: [{that: id > 5, else: drop}]",
            "Remove it, or the filter, WHERE, route or `else: drop`",
        ),
        ("value: {document: text}", "only events of MongoDB hold documents"),
        ("history: {}, value: {document: text}", "has no use without `change_data`"),
        ("change_data: {}, value: {document: text, rest: more}", "has no use with `document: text`"),
        ("change_data: {key: [_id]}, value: {document: text}", "names _id of the document"),
        (
            "history: {of: change_data, key: [a.b]}, value: {document: text}",
            "history.key  names a.b of the document",
        ),
        ("change_data: {}, value: {document: none.json}", 'none.json" cannot be read'),
        ("change_data: {}, value: {document: calve.yaml}", '"calve.yaml" makes no table: this is no JSON'),
    ],
)
def test_a_mode_that_says_too_little_or_too_much_is_refused(written: str, says: str) -> None:
    assert says in refused(written)


INFER = "format: json, schema: infer"


@pytest.mark.parametrize(
    ("written", "source"),
    [
        (f"value: {{{INFER}}}", Source(format="json", prefix="none", rest="rest", infer=Infer())),
        (
            f"value: {{{INFER}, rest: more, infer: {{columns: 9, depth: 2, types: {{a.b: double, c: date}}}}}}",
            Source(
                format="json", prefix="none", rest="more", infer=Infer(9, 2, {"a.b": "double", "c": "date"})
            ),
        ),
    ],
)
def test_records_may_make_the_columns(written: str, source: Source) -> None:
    job = loaded(written, stack=STACK)
    assert job.tables[0].value == source
    assert from_plain(Job, json.loads(json.dumps(asdict(job)))) == job


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("value: {format: avro, schema: infer}", "only JSON says the names of its fields"),
        ("value: {format: protobuf, schema: infer}", "Name a schema file, or use `format: json`"),
        ("value: {format: json, schema: none.json, infer: {}}", "has no use without `schema: infer`"),
        ("value: {infer: {columns: 3}}", "has no use without `schema: infer`"),
        (f"value: {{{INFER}, infer: {{columns: 0}}}}", "columns"),
        (f"value: {{{INFER}, infer: {{depth: 11}}}}", "depth"),
        (f"value: {{{INFER}, infer: {{types: {{a: int}}}}}}", "types.a"),
        (f"value: {{{INFER}, infer: {{columns: 1, types: {{a: long, b: long}}}}}}", "the table at most 1"),
        (f"value: {{{INFER}, infer: {{types: {{a: long, a.b: long}}}}}}", "which has no fields with `long`"),
        (f"value: {{{INFER}, infer: {{types: {{a: long, A: long}}}}}}", "only by case"),
        (f"value: {{{INFER}, infer: {{depth: 1, types: {{a.b: long}}}}}}", "is deeper than 1"),
        (f"value: {{{INFER}, infer: {{types: {{REST: long}}}}}}", "is the column of `rest`"),
        (f"value: {{{INFER}, infer: {{types: {{rest.a: long}}}}}}", "is the column of `rest`"),
        (f"key: {{format: string, column: rest}}, value: {{{INFER}}}", "name of another column"),
        (
            f"key: {{format: string}}, value: {{{INFER}, infer: {{types: {{key: long}}}}}}",
            "is the column of `key`",
        ),
        (f"value: {{{INFER}}}, upsert: {{key: [id]}}", "cannot be used with `schema: infer`"),
        (f"value: {{{INFER}}}, change_data: {{}}", "cannot be used with `schema: infer`"),
        (f"value: {{{INFER}}}, steps: [{{filter: a > 1}}]", "tables.t0.steps  cannot be used with"),
        (f"value: {{{INFER}}}, quarantine_new_fields: true", "Remove it, or name a schema: `schema: FILE`"),
        (f"value: {{{INFER}}}, partition_by: [day(at)]", "add `infer: {types: {at: TYPE}}`"),
        (f"value: {{{INFER}}}, event_time: at", "add `infer: {types: {at: timestamptz}}`"),
    ],
)
def test_inference_that_says_too_little_or_too_much_is_refused(written: str, says: str) -> None:
    assert says.lower() in refused(written).lower()


def test_records_may_be_cloud_events() -> None:
    job = loaded("value: {format: string, cloudevents: event}, event_time: event.time", stack=STACK)
    assert job.tables[0].value == Source(format="string", prefix="none", cloudevents="event")
    assert from_plain(Job, json.loads(json.dumps(asdict(job)))) == job


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("value: {cloudevents: _kafka}", "cloudevents"),
        ("value: {format: string, cloudevents: value}", '"value" is the name of another column'),
        (f"value: {{{INFER}, cloudevents: REST}}", '"rest" is the name of another column'),
        ("key: {format: string, column: event}, value: {cloudevents: Event}", "give it another name"),
        ("value: {cloudevents: event}, change_data: {}", "calve reads Debezium's own events"),
        (
            f"value: {{{INFER}, cloudevents: event, infer: {{types: {{event.id: string}}}}}}",
            "is the column of `cloudevents`",
        ),
    ],
)
def test_a_column_of_attributes_that_cannot_be_is_refused(written: str, says: str) -> None:
    assert says.lower() in refused(written).lower()


@pytest.mark.parametrize(
    ("written", "deduplicate"),
    [
        ("deduplicate: {}", Deduplicate(("_kafka.key",))),
        (
            "key: {format: string, column: user}, deduplicate: {window: 7d}",
            Deduplicate(("user",), 604_800_000),
        ),
        ("deduplicate: {key: [shop.id, no], keep: first, window: unbounded}", Deduplicate(("shop.id", "no"))),
    ],
)
def test_a_table_without_duplicates_has_a_key_and_perhaps_a_window(
    written: str, deduplicate: Deduplicate
) -> None:
    job = loaded(written, stack=STACK)
    assert job.tables[0].mode == deduplicate
    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("written", "changes"),
    [
        ("change_data: {}", ChangeData(("_kafka.key",), deletes=True, bucketed=True)),
        ("change_data: {key: [id]}", ChangeData(("id",), bucketed=True)),
        (
            "key: {column: of}, change_data: {deletes: keep}, partition_by: []",
            ChangeData(("of",), keep_deleted=True),
        ),
        (
            "change_data: {order_by: [file, pos], deletes: keep}",
            ChangeData(
                ("_kafka.key",),
                order_by="_change.position",
                bucketed=True,
                source_order=("file", "pos"),
                keep_deleted=True,
            ),
        ),
    ],
)
def test_a_table_of_changes_deletes_where_tombstones_name_its_rows(written: str, changes: ChangeData) -> None:
    job = loaded(written, stack=STACK)
    assert job.tables[0].mode == changes
    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("written", "key", "policy"),
    [
        ("upsert: {}", (), "compact"),
        ("upsert: {key: [_kafka.key]}", (), "compact"),
        ("key: {column: pk}, change_data: {}", ("pk",), "compact"),
        ("change_data: {key: [id, shop]}", ("id", "shop"), "compact"),
        ("aggregate: {by: [shop.id], measures: {n: count(*)}}", ("shop_id",), "compact"),
        ("deduplicate: {key: [id]}", (), "delete"),
    ],
)
def test_records_of_an_output_topic_have_the_key_of_the_table(
    written: str, key: tuple[str, ...], policy: str
) -> None:
    emit = loaded(f"{written}, emit: {{topic: t2}}", stack=STACK).tables[0].emit
    assert emit is not None
    assert (emit.key, emit.cleanup_policy) == (key, policy)


def test_expectations_are_the_last_steps_with_their_parameters() -> None:
    written = (
        "steps: [filter: id > 5], parameters: {least: 3}, expect: [{that: price > :least}, "
        "{that: a = 1, else: drop, at_least: 50%}, {that: b = 1, else: suspend}]"
    )
    job = loaded(written, stack=STACK)
    assert job.tables[0].steps == (
        Filter("id > 5"),
        Expect("price > 3"),
        Expect("a = 1", drop=True, at_least=0.5),
        Expect("b = 1", at_least=1.0, suspends=True),
    )
    assert job.tables[0].reports_expectations
    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("written", "history"),
    [
        ("history: {}", History(("_kafka.key",), deletes=True, bucketed=True)),
        ("history: {key: [id], order_by: of.at}", History(("id",), by="of.at", bucketed=True)),
        ("history: {of: change_data}", History(("_kafka.key",), changes=True, bucketed=True)),
    ],
)
def test_a_table_of_versions_reads_records_or_changes(written: str, history: History) -> None:
    job = loaded(written, stack=STACK)
    assert job.tables[0].mode == history
    assert Job.from_json(job.to_json()) == job


TOTALS = "measures: {total: sum(price*quantity), trades: count(*)}"


@pytest.mark.parametrize(
    ("written", "window"),
    [
        (f"aggregate: {{by: [userid, shop.id], {TOTALS}}}", None),
        (
            f"aggregate: {{by: [userid, shop.id], {TOTALS}, window: {{column: _kafka.timestamp, size: 1h}}}}",
            Window("_kafka.timestamp", 3_600_000),
        ),
    ],
)
def test_a_table_of_totals_has_groups_and_measures_in_their_order(
    written: str, window: Window | None
) -> None:
    job = loaded(f"event_time: at, {written}", stack=STACK)
    measures = (Measure("total", "sum(price * quantity)"), Measure("trades", "count(*)"))
    assert job.tables[0].mode == Aggregate(("userid", "shop.id"), measures, window)
    assert job.tables[0].partition_by == ()
    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{by: [id]}", "aggregate.measures"),
        ("{measures: {n: count(*)}}", "aggregate.by"),
        ("{by: [], measures: {n: count(*)}}", "aggregate.by"),
        ("{by: [id], measures: {}}", "is empty. Name at least one"),
        ("{by: [id], measures: [count]}", "must be a mapping. Write it as {name: value}"),
        ("{by: [id], measures: {n: 5}}", "must be text"),
        ("{by: [id], measures: {n: avg(price)}}", "keep sum(x) and count(x)"),
        ("{by: [id], measures: {n: sum(price / 2)}}", '"/" at character 11 cannot be used'),
        ("{by: [id], measures: {n: sum(_kafka.ofset)}}", "_kafka.offset"),
        ("{by: [id], measures: {n-1: count(*)}}", '"n-1"'),
        ("{by: [id], measures: {Id: count(*)}}", '"Id" is the name of two columns'),
        ("{by: [a.b, a_b], measures: {n: count(*)}}", '"a_b" is the name of two columns'),
        ("{by: [id], measures: {_kafka: count(*)}}", "_kafka"),
        (
            "{by: [id], measures: {window_start: min(at)}, window: {column: at, size: 1h}}",
            '"window_start" is the name of two columns',
        ),
        ("{by: [id], measures: {n: count(*)}, window: {column: at}}", "window.size"),
        ("{by: [id], measures: {n: count(*)}, window: {column: at, size: 5ms}}", "less than a second"),
        ("{by: [id], measures: {n: count(*)}}, upsert: {}", "cannot be used together with `upsert`"),
        ("{by: [id], measures: {n: count(*)}}, deduplicate: {}", "together with `deduplicate`"),
    ],
)
def test_totals_that_say_too_little_or_too_much_are_refused(written: str, says: str) -> None:
    assert says in refused(f"aggregate: {written}")
