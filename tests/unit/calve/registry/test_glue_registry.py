"""The client of the AWS Glue Schema Registry, against moto's as an HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import boto3
import pytest

from calve.config.job import GlueRegistry as Settings
from calve.decoding.record_schemas import Subjects
from calve.errors import Fatal, Retryable
from calve.registry.glue import GlueRegistry
from calve.registry.registry import open_registry
from tests.integration.support.servers.glue_schemas import REGION, GlueSchemas, serving

FIRST = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
SECOND = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> Iterator[GlueSchemas]:
    with serving() as served:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", served.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield served


def opened(schemas: GlueSchemas) -> GlueRegistry:
    schemas.asked.clear()
    return GlueRegistry(schemas.name, REGION)


def test_a_version_is_found_by_its_uuid_and_asked_for_once(schemas: GlueSchemas) -> None:
    schemas.register("events", FIRST)
    second = schemas.register("events", SECOND)
    registry = opened(schemas)
    found = registry.by_id(second.int)
    assert found is not None
    assert (found.id, found.version, found.number, found.type) == (second.int, 2, 2, "AVRO")
    assert registry.by_id(second.int) is found
    assert registry.subjects_of(second.int) == ["events"]
    assert schemas.asked == ["GetSchemaVersion"]


def test_an_unknown_uuid_is_asked_for_again(schemas: GlueSchemas) -> None:
    registry = opened(schemas)
    assert [registry.by_id(uuid4().int) for _ in range(2)] == [None, None]
    assert registry.subjects_of(uuid4().int) == []


def test_a_schema_of_another_registry_is_none_of_ours(schemas: GlueSchemas) -> None:
    version = schemas.register("events", FIRST)
    assert GlueRegistry("another", REGION).by_id(version.int) is None


def test_versions_come_oldest_first_and_are_asked_for_once(schemas: GlueSchemas) -> None:
    ids = [schemas.register("events", each).int for each in (FIRST, SECOND)]
    registry = opened(schemas)
    assert [each.id for each in registry.versions("events")] == ids
    assert schemas.asked == ["GetSchema", "GetSchemaVersion", "GetSchemaVersion"]
    registry.versions("events")
    assert schemas.asked[3:] == ["GetSchema"]
    registry.forget("events")
    registry.versions("events")
    assert schemas.asked[4:] == ["GetSchema", "GetSchemaVersion", "GetSchemaVersion"]
    assert registry.versions("absent") == []


def test_a_pattern_finds_schemas_on_all_pages_in_the_order_of_their_registration(
    schemas: GlueSchemas,
) -> None:
    made = [schemas.register(name, FIRST).int for name in ("e.c", "e.a", "x", "e.b", "e.d")]
    registry = opened(schemas)
    assert registry.subjects() == ["e.a", "e.b", "e.c", "e.d", "x"]
    assert [each.id for each in Subjects(registry, "e.*").versions()] == [*made[:2], *made[3:]]


def test_a_refusal_ends_the_job_and_names_what_to_allow(schemas: GlueSchemas) -> None:
    registry = opened(schemas)
    schemas.refuse = "AccessDeniedException"
    with pytest.raises(Fatal, match="AccessDeniedException") as caught:
        registry.versions("events")
    assert "glue:GetSchemaVersion" in str(caught.value)


def test_a_registry_that_is_overloaded_is_asked_again_and_then_left_to_the_next_round(
    schemas: GlueSchemas,
) -> None:
    registry = opened(schemas)
    schemas.refuse = "ThrottlingException"
    with pytest.raises(Retryable, match="ThrottlingException"):
        registry.by_id(uuid4().int)
    assert len(schemas.asked) == 3


def test_nothing_listening_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with pytest.raises(Retryable, match="EndpointConnectionError"):
        GlueRegistry("r", REGION).versions("events")


def test_without_credentials_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(Fatal, match="Unable to locate credentials"):
        GlueRegistry("r", REGION).versions("events")


def test_the_configuration_opens_it(schemas: GlueSchemas) -> None:
    registry = open_registry(Settings(schemas.name, REGION))
    assert isinstance(registry, GlueRegistry)
    assert registry.default_subject("events") == "events"
