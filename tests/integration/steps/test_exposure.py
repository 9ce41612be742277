"""Below `metadata/`, where operators may read, lies no row, and no value of a key, a header or a field that is masked."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import fastavro
import pytest

from calve.config.steps import Filter, Flatten, Mask, Rule, Sql, Step
from calve.names import DEAD_LETTERS_SUFFIX
from glue_jobs.engines.columnar.engine import location_of
from glue_jobs.iceberg.exposure import COUNTED, MOVING
from glue_jobs.iceberg.staging import stage
from tests.integration.steps.test_steps import sale, schema
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.stored import objects

KEY, HEADER, BAD = b"k-Jonas-Jonaitis", b"h-Gedimino-pr-9", b"\x01v-Vilniaus-g-3"
MASK = Mask(fields={"customer.email": Rule("partial", "domain"), "items.sku": Rule("hash")})
SHOWN = "Ukmerge"
"""What a column that nobody masks holds: bounds have it."""


@pytest.fixture(scope="module")
def masking(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("exposure") / "keys.json"
    key = base64.b64encode(sha256(b"exposure").digest()).decode()
    file.write_text(json.dumps({"keys": [{"id": "k1", "from": "2020-01-01T00:00:00Z", "key": key}]}))
    return f"file:{file}"


def metadata(engine: Engine, table: str) -> str:
    """All that is below `metadata/` of a table and of its dead letters, in words."""
    found = []
    for name in (table, table + DEAD_LETTERS_SUFFIX):
        for key, body in objects(engine, lambda each, at=f"/{name}/metadata/": at in each["Key"]):  # type: ignore[misc]
            if key.endswith(".avro"):
                found.append(str(list(fastavro.reader(io.BytesIO(body)))))
            else:
                assert key.endswith(".metadata.json"), key
                found.append((gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode())
    assert found
    return "\n".join(found)


def bounds(engine: Engine, table: str) -> list[set[str]]:
    """Of each data file that main has, the columns of which bounds are in its manifest."""
    names = {leaf["id"]: leaf["name"] for leaf in _fields(engine.table(table).schema)}
    files = engine.sql("SELECT lower_bounds, upper_bounds FROM {t}.files WHERE content = 0", table).collect()
    return [{names[id_] for side in row for id_ in side or () if id_ in names} for row in files]


def _fields(kind: Any, prefix: str = "") -> list[dict[str, Any]]:
    found = []
    for each in kind["fields"]:
        found.append({"id": each["id"], "name": prefix + each["name"]})
        if isinstance(each["type"], dict) and each["type"]["type"] == "struct":
            found += _fields(each["type"], f"{prefix}{each['name']}.")
    return found


def produced(engine: Engine, *, bad: int = 0) -> str:
    note = {"name": "note", "type": ["null", "string"], "default": None}
    topic = engine.topic(schema=schema(note), partitions=1)
    send(engine, topic, bad=bad)
    return topic


def send(engine: Engine, topic: str, *, bad: int = 0) -> None:
    value = engine.encode(topic, sale(1, "sku-Kaunas") | {"note": SHOWN})
    for body in (value, *[BAD] * bad):
        engine.producer.produce(topic, body, key=KEY, headers=[("user", HEADER)])
    engine.flush()


@pytest.mark.long
@pytest.mark.parametrize("chosen", ["rows", "columnar"])
def test_metadata_shows_no_key_no_header_and_nothing_of_a_dead_letter(engine: Engine, chosen: Any) -> None:
    topic = produced(engine, bad=1)
    engine.drain(engine.target(topic, engine=chosen))
    text = metadata(engine, topic)
    assert SHOWN in text  # of a column like any other there are bounds
    for value in (KEY, HEADER, BAD[1:]):
        assert value.decode()[:12] not in text
    for found in (*bounds(engine, topic), *bounds(engine, topic + DEAD_LETTERS_SUFFIX)):
        assert not {"_kafka.key", "key", "value"} & found
        assert {"_kafka.offset", "note"} <= found or "offset" in found
    engine.drain(engine.target(topic, engine=chosen))
    engine.compact(topic)
    engine.compact(topic + DEAD_LETTERS_SUFFIX)
    assert not any(value.decode()[:12] in metadata(engine, topic) for value in (KEY, HEADER, BAD[1:]))


@pytest.mark.parametrize("chosen", ["rows", "auto"])
@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        ((MASK,), {"id", "note"}),
        ((MASK, Flatten()), {"id", "note", "customer_id"}),
        (
            (
                Flatten(explode="items"),
                Mask(fields={"customer_email": Rule("hash"), "items_sku": Rule("hash")}),
            ),
            {"id"},
        ),
        ((MASK, Filter("id > 0"), Sql("SELECT id, note, customer.email AS contact FROM source")), set()),
    ],
)
def test_metadata_shows_nothing_that_is_made_of_a_masked_field(
    engine: Engine, masking: str, chosen: Any, steps: tuple[Step, ...], shown: set[str]
) -> None:
    topic = produced(engine)
    engine.drain(engine.target(topic, engine=chosen, steps=steps, masking=masking))
    (found,) = bounds(engine, topic)
    assert {each for each in found if not each.startswith("_kafka")} >= shown
    assert not [
        each for each in found if "email" in each or "sku" in each or each in ("contact", "_kafka.key")
    ]
    if not shown:
        assert found == {each for each in found if each.startswith("_kafka.")}
    assert "example.com" not in metadata(engine, topic)


def test_a_table_that_is_there_is_covered_at_the_next_open_and_once_more_where_somebody_uncovers_it(
    engine: Engine,
) -> None:
    topic = produced(engine)
    target = engine.target(topic)
    engine.drain(target)
    for changes in ({}, {"write.metadata.metrics.default": "full", COUNTED + "_kafka.key": "full"}):
        made = engine.table(topic)
        made.set_properties(changes, remove=set(made.properties) & {f"{COUNTED}_kafka.key"} - set(changes))
        send(engine, topic)
        engine.drain(target)
        assert engine.table(topic).properties[f"{COUNTED}_kafka.key"] == "counts"
        assert not any("_kafka.key" in found for found in bounds(engine, topic))


def moved(engine: Engine, table: str, property_: str) -> Callable[[], None]:
    """Give the table a property; what takes it back."""
    made = engine.table(table)
    made.set_properties({property_: f"{made.java.location()}/metadata/rows"})
    return lambda: engine.table(table).set_properties({}, remove=[property_])


@pytest.mark.parametrize(
    ("property_", "chosen"),
    [(each, "columnar") for each in sorted(MOVING - {"write.location-provider.impl"})]
    + [("write.data.path", "rows")],
)
def test_a_table_whose_files_are_moved_is_suspended_and_goes_on_where_it_was(
    engine: Engine, property_: str, chosen: Any
) -> None:
    topic = produced(engine)
    engine.drain(engine.target(topic, engine=chosen))
    back = moved(engine, topic, property_)
    send(engine, topic)
    with suspended("foreign_path"):
        engine.drain(engine.target(topic, engine=chosen))
    back()
    engine.drain(engine.target(topic, engine=chosen))
    assert engine.rows(topic).count() == 2
    there = [key for key, _ in objects(engine, lambda each: f"{topic}/metadata/rows" in each["Key"])]
    assert not [key for key in there if not key.endswith(".metadata.json")]


def test_a_table_that_is_moved_to_metadata_is_suspended(engine: Engine) -> None:
    topic = produced(engine)
    engine.drain(engine.target(topic))
    java = engine.table(topic).java
    java.updateLocation().setLocation(f"{java.location()}/metadata").commit()
    send(engine, topic)
    with suspended("foreign_path"):
        engine.drain(engine.target(topic))


def test_dead_letters_that_are_moved_suspend_their_table(engine: Engine) -> None:
    topic = produced(engine, bad=1)
    engine.drain(engine.target(topic))
    back = moved(engine, topic + DEAD_LETTERS_SUFFIX, "write.data.path")
    send(engine, topic, bad=1)
    with suspended("foreign_path"):
        engine.drain(engine.target(topic))
    back()
    engine.drain(engine.target(topic))
    assert engine.letters(topic).count() == 2


def test_a_property_that_comes_between_the_opening_and_the_writing_is_seen(engine: Engine) -> None:
    topic = produced(engine)
    target = engine.target(topic)
    engine.drain(target)
    send(engine, topic)
    target.open()
    target.opened.main.set_properties(
        {"write.data.path": f"{target.opened.main.java.location()}/metadata/rows"}
    )
    for write in (
        lambda: location_of(target.opened.main, "x"),
        lambda: stage(target.opened.main, engine.rows(topic), "x"),
    ):
        with suspended("foreign_path"):
            write()
