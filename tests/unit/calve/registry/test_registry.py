"""The registry client against a real HTTP server that answers as registries do, and as what stands before them may."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from uuid import UUID

import pytest

from calve.errors import Fatal, Retryable
from calve.registry.confluent import ConfluentRegistry
from calve.secrets import HeldSecret

ABSENT = (404, {"error_code": 40403, "message": "Schema not found"})


class Answers(BaseHTTPRequestHandler):
    pages: ClassVar[dict[str, tuple[int, object]]] = {}
    asked: ClassVar[list[str]] = []
    credentials: ClassVar[str | None] = None

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, body = self.pages.get(self.path, ABSENT)
        if self.credentials and self.headers["Authorization"] != self.credentials:
            status, body = 401, {"error_code": 401}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Answers.pages, Answers.asked, Answers.credentials = {}, [], None
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_a_schema_is_asked_for_once(server: str) -> None:
    Answers.pages["/schemas/ids/7"] = (200, {"schema": '"int"'})
    registry = ConfluentRegistry(server)
    assert [registry.by_id(7), registry.by_id(7)] == [registry.by_id(7)] * 2
    assert Answers.asked == ["/schemas/ids/7"]


def test_an_absent_id_is_asked_for_again(server: str) -> None:
    registry = ConfluentRegistry(server)
    assert registry.by_id(7) is None
    Answers.pages["/schemas/ids/7"] = (200, {"schema": '"int"'})
    assert registry.by_id(7) is not None


def test_versions_come_oldest_first_with_their_ids(server: str) -> None:
    Answers.pages |= {
        "/subjects/a%2Fb-value/versions": (200, [2, 1]),
        "/subjects/a%2Fb-value/versions/1": (200, {"id": 30, "schema": "x"}),
        "/subjects/a%2Fb-value/versions/2": (200, {"id": 20, "schema": "y", "schemaType": "JSON"}),
    }
    found = ConfluentRegistry(server).versions("a/b-value")
    assert [(schema.id, schema.type) for schema in found] == [(30, "AVRO"), (20, "JSON")]


def test_subjects_are_listed_in_order(server: str) -> None:
    Answers.pages["/subjects"] = (200, ["b-value", "a-value"])
    assert ConfluentRegistry(server).subjects() == ["a-value", "b-value"]


def test_a_subject_made_again_has_its_new_ids_after_forget(server: str) -> None:
    Answers.pages |= {
        "/subjects/s/versions": (200, [1]),
        "/subjects/s/versions/1": (200, {"id": 1, "schema": "x"}),
    }
    registry = ConfluentRegistry(server)
    registry.versions("s")
    Answers.pages["/subjects/s/versions/1"] = (200, {"id": 9, "schema": "x"})
    registry.forget("s")
    assert [schema.id for schema in registry.versions("s")] == [9]


@pytest.mark.parametrize(
    "answer",
    [
        (503, {}),
        (404, b"<html>no such page</html>"),
        (404, {"message": "a proxy"}),
        (200, b"<html>hello</html>"),
    ],
)
def test_what_is_no_answer_of_a_registry_is_tried_again_and_never_an_absent_schema(
    server: str, answer: tuple[int, object]
) -> None:
    Answers.pages["/schemas/ids/7"] = answer
    with pytest.raises(Retryable):
        ConfluentRegistry(server).by_id(7)


def test_nothing_listening_is_tried_again(server: str) -> None:
    with pytest.raises(Retryable, match="does not answer"):
        ConfluentRegistry("http://127.0.0.1:1").by_id(7)


def test_credentials_are_sent_and_a_refusal_names_no_password(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Answers.credentials = "Basic " + base64.b64encode(b"ada:right").decode()
    Answers.pages["/schemas/ids/7"] = (200, {"schema": "x"})
    monkeypatch.setenv("REGISTRY", json.dumps({"username": "ada", "password": "right"}))
    assert ConfluentRegistry(server, secret=HeldSecret("env:REGISTRY")).by_id(7)
    monkeypatch.setenv("REGISTRY", json.dumps({"username": "ada", "password": "hunter2"}))
    with pytest.raises(Fatal) as caught:
        ConfluentRegistry(server, secret=HeldSecret("env:REGISTRY")).by_id(7)
    assert "hunter2" not in str(caught.value)


def test_another_scheme_is_refused_at_once() -> None:
    with pytest.raises(Fatal, match="neither http nor https"):
        ConfluentRegistry("file:///etc/passwd")


def reference(name: str, subject: str, version: int) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": version}


def test_a_schema_has_the_texts_of_all_that_it_refers_to_and_asks_for_them_once(server: str) -> None:
    middle = reference("middle.json", "a/middle", 2)
    Answers.pages |= {
        "/schemas/ids/7": (200, {"schema": "top", "schemaType": "JSON", "references": [middle]}),
        "/subjects/a%2Fmiddle/versions/2?deleted=true": (
            200,
            {"id": 3, "schema": "middle", "references": [reference("inner", "inner", 1), middle]},
        ),
        "/subjects/inner/versions/1?deleted=true": (200, {"id": 2, "schema": "inner"}),
    }
    registry = ConfluentRegistry(server)
    found = registry.by_id(7)
    assert found is not None
    assert list(found.references.items()) == [("inner", "inner"), ("middle.json", "middle")]
    assert registry.by_id(7) is found
    assert len(Answers.asked) == 3


def test_a_version_has_its_references_too(server: str) -> None:
    Answers.pages |= {
        "/subjects/s/versions": (200, [1]),
        "/subjects/s/versions/1": (200, {"id": 1, "schema": "x", "references": [reference("r", "r", 1)]}),
        "/subjects/r/versions/1?deleted=true": (200, {"id": 2, "schema": "y"}),
    }
    assert [dict(each.references) for each in ConfluentRegistry(server).versions("s")] == [{"r": "y"}]


def test_a_version_that_was_deleted_softly_is_still_its_subjects(server: str) -> None:
    Answers.pages["/schemas/ids/7/versions?deleted=true"] = (200, [{"subject": "s", "version": 1}])
    registry = ConfluentRegistry(server)
    assert registry.subjects_of(7) == ["s"]
    assert registry.subjects_of(8) == []


def test_a_changed_password_is_taken_without_a_new_start(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def secret(password: str) -> None:
        monkeypatch.setenv("REGISTRY", json.dumps({"username": "ada", "password": password}))

    def wanted(password: str) -> None:
        Answers.credentials = "Basic " + base64.b64encode(f"ada:{password}".encode()).decode()

    secret("one")
    wanted("one")
    Answers.pages["/subjects"] = (200, [])
    registry = ConfluentRegistry(server, secret=HeldSecret("env:REGISTRY"))
    assert registry.subjects() == []
    wanted("two")
    with pytest.raises(Fatal, match="refused the credentials"):
        registry.subjects()
    secret("two")
    with pytest.raises(Retryable, match="changed a moment ago"):
        registry.subjects()
    assert registry.subjects() == []


GUID = UUID("6da336d8-f1d3-0f98-4c47-d03ee8a14a15")


def test_a_guid_is_that_of_the_answer_or_is_looked_up_in_the_context_of_the_url(server: str) -> None:
    found = [{"context": ".", "id": 7}, {"context": ".staging", "id": 3}]
    Answers.pages |= {
        "/schemas/ids/7": (200, {"schema": '"int"'}),
        f"/schemas/guids/{GUID}/ids": (200, found),
        "/contexts/.staging/schemas/ids/3": (200, {"schema": '"int"'}),
        f"/contexts/.staging/schemas/guids/{GUID}/ids": (200, found),
        "/contexts/.none/schemas/ids/9": (200, {"schema": '"int"', "guid": str(GUID)}),
    }
    for url, number in ((server, 7), (f"{server}/contexts/.staging", 3)):
        schema = ConfluentRegistry(url).by_id(GUID.int)
        assert schema is not None
        assert schema.ids == (number, GUID.int)
    stating = ConfluentRegistry(f"{server}/contexts/.none")
    assert stating.by_id(9) == stating.by_id(GUID.int), "nothing is looked up"


def test_a_registry_without_guids_knows_none_and_is_not_down(server: str) -> None:
    Answers.pages[f"/schemas/guids/{GUID}/ids"] = (404, b"<html>no such path</html>")
    assert ConfluentRegistry(server).by_id(GUID.int) is None
    assert ConfluentRegistry(server).subjects_of(GUID.int) == []
    Answers.pages[f"/schemas/guids/{GUID}/ids"] = (503, b"")
    with pytest.raises(Retryable):
        ConfluentRegistry(server).by_id(GUID.int)


def test_subjects_of_a_context_have_their_own_names(server: str) -> None:
    Answers.pages |= {
        "/contexts/.staging/subjects": (200, [":.staging:a", ":.staging:b"]),
        "/contexts/.staging/schemas/ids/3/versions?deleted=true": (
            200,
            [{"subject": ":.staging:a", "version": 1}],
        ),
    }
    registry = ConfluentRegistry(f"{server}/contexts/.staging")
    assert registry.subjects() == ["a", "b"]
    assert registry.subjects_of(3) == ["a"]


def test_an_alias_has_the_name_of_its_subject(server: str) -> None:
    Answers.pages |= {
        "/config/a": (200, {"alias": "real"}),
        "/config/b": (200, {"compatibilityLevel": "FULL"}),
        "/config/c": (404, {"error_code": 40408}),
        "/config/d": (403, {"error_code": 40301}),
        "/contexts/.x/config/a": (200, {"alias": ":.x:real"}),
    }
    registry = ConfluentRegistry(server)
    assert [registry.real_name(each) for each in "abcd"] == ["real", "b", "c", "d"]
    assert ConfluentRegistry(f"{server}/contexts/.x").real_name("a") == "real"
