"""A topic of several persons and its table, out of which one of them is to be forgotten; every value says whose it is."""

from __future__ import annotations

import base64
import hmac
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from calve.config.job import Budget, Table
from calve.config.masking_keys import Key, pads
from calve.config.steps import Mask, Rule
from calve.requests import redrive
from calve.requests.forget import Condition, Entry, Request
from calve.requests.redrive import Result
from calve.table.summary import FORGET, REDRIVE
from cli.act.forget import sealed
from glue_jobs.table.opening import Opener
from tests.integration.support.engine import Engine
from tests.integration.support.proofs import proof
from tests.integration.support.records.planted import Planted, Search
from tests.integration.support.stored import catalogued, export, objects

KEY = Key("k1", 0, sha256(b"forget").digest())
MASK = Mask(
    fields={"email": Rule("hash"), "account": Rule("hash"), "contact.phone": Rule("hash")}, key="keep"
)
CONTACT = {"type": "record", "name": "Contact", "fields": [{"name": "phone", "type": "string"}]}
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "email", "type": "string"},
        {"name": "account", "type": "long"},
        {"name": "contact", "type": CONTACT},
        {"name": "version", "type": "int"},
    ],
}
DAYS = (datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Somebody:
    """One person's values; `key`: of the records."""

    key: str
    email: str
    account: int
    phone: str


@dataclass
class Scene:
    """`settings`: of the table. Whoever is meant by a number has values that are planted under it."""

    engine: Engine
    folder: Path
    settings: dict[str, Any]
    count: int = 3
    planted: Planted = field(default_factory=Planted)
    version: int = 0

    def __post_init__(self) -> None:
        self.topic = self.engine.topic(partitions=1, schema=json.dumps(PERSON))
        self.later = json.dumps(PERSON | {"doc": uuid.uuid4().hex})
        self.missing = 1 + self.engine.register(
            f"{self.topic}-probe", json.dumps(PERSON | {"name": "Probe", "doc": uuid.uuid4().hex})
        )
        secret = {"id": KEY.id, "from": "2020-01-01T00:00:00Z", "key": base64.b64encode(KEY.secret).decode()}
        self.secret = self.folder / "keys.json"
        self.secret.write_text(json.dumps({"keys": [secret]}))
        for each in (KEY.secret, KEY.seal, *pads(KEY.secret), *pads(KEY.seal)):
            self.planted.secret(each, "the masking key")
        self.persons = [self._somebody(n) for n in range(self.count)]

    @property
    def masking(self) -> str | None:
        return f"file:{self.secret}" if MASK in self.settings.get("steps", ()) else None

    @property
    def table(self) -> Table:
        budget = Budget(records=10**6)
        return Table(self.topic, self.topic, dead_letter_budget=budget, freshness_s=1.0, **self.settings)

    def target(self, **settings: Any) -> Opener:
        budget = Budget(records=10**6)
        settings = {"dead_letter_budget": budget, "masking": self.masking} | self.settings | settings
        return self.engine.target(self.topic, **settings)

    def work(self) -> None:
        target = self.target()
        self.engine.drain(target)
        target.opened.mark_idle()

    def round(self, *numbers: int) -> None:
        """A record, and letters of three kinds, of each person, read by a round of its own."""
        self.produce(*numbers)
        self.work()

    def produce(self, *numbers: int) -> None:
        for n in numbers or range(self.count):
            person, self.version = self.persons[n], self.version + 1
            good = self.value(person)
            early = b"\0" + self.missing.to_bytes(4, "big") + good[5:]
            for value in (good, early, b"\1" + good[1:], good[:-1]):
                self.send(n, value)
        self.engine.flush()

    def value(self, person: Somebody) -> bytes:
        row = {"email": person.email, "account": person.account, "contact": {"phone": person.phone}}
        return self.engine.encode(self.topic, row | {"version": self.version})

    def send(self, n: int, value: bytes | None) -> None:
        """Person 2 is of another day than the others."""
        day = DAYS[1 if n == 2 else 0]
        self.engine.producer.produce(
            self.topic,
            value,
            key=self.persons[n].key.encode(),
            headers=[("user", self.persons[n].email.encode())],
            timestamp=int(day.timestamp() * 1000) + self.version,
        )

    def ask(self, **where: str) -> str:
        return self.ask_for(*(Condition(name.replace("__", "."), value) for name, value in where.items()))

    def ask_for(self, *conditions: Condition) -> str:
        request = Request(uuid.uuid4().hex, "2026-05-01T00:00:00+00:00", conditions)
        request = sealed(request, self.engine.job(masking=self.masking), self.table)
        self.engine.table(self.topic).set_properties({FORGET: request.to_json()})
        return request.id

    def asked(self, column: str, value: str) -> str:
        """A request that the next job has answered."""
        request = self.ask(**{column: value})
        self.work()
        return request

    def redrive(self) -> Result:
        request = redrive.Request(uuid.uuid4().hex, "2026-05-01T00:00:00+00:00")
        self.engine.table(self.topic).set_properties({REDRIVE: request.to_json()})
        self.work()
        found = Result.of(self.engine.table(self.topic).properties, request.id)
        assert found is not None
        return found

    def answer(self, request: str) -> Entry:
        found = Entry.of(self.engine.table(self.topic).properties, request)
        assert found is not None
        return found

    def export(self) -> None:
        """Both days as CSV files."""
        for day in DAYS:
            export(self.engine, self.topic, self.topic, day, day + timedelta(days=1))

    def manifests(self) -> list[str]:
        """The windows that have a stored export."""
        return sorted(name.split("/")[3] for name, _ in self.objects() if name.endswith("/manifest.json"))

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """All versions of all objects of the table, its letters and its exports, and what the catalog says of both."""
        yield from objects(self.engine, lambda each: self.topic in each["Key"])
        yield from catalogued(self.engine, self.topic)

    def found(self, *said: str) -> dict[str, set[str]]:
        """Whose values are where: place of a value -> the objects that hold it."""
        search = Search(self.planted)
        places: dict[str, set[str]] = {}
        everything = [*self.objects(), *(("said", each.encode()) for each in said)]
        for name, data in everything:
            for place in search.found(name, data):
                places.setdefault(place, set()).add(name)
        return places

    def rows(self) -> list[str]:
        return sorted(str(each) for each in self.engine.rows(self.topic).collect())

    def letters(self) -> list[str]:
        return sorted(str(each) for each in self.engine.letters(self.topic).collect())

    def proof(self) -> Any:
        return proof(self.engine, self.topic, steps=self.settings.get("steps", ()), masking=self.masking)

    def _somebody(self, n: int) -> Somebody:
        made = self.planted
        email, account = made.email(f"{n}: email"), made.number(f"{n}: account")
        phone, key = made.phone(f"{n}: phone"), made.text(f"{n}: key")
        for value in (email, str(account), phone):
            made.secret(hmac.digest(KEY.secret, value.encode(), "sha256"), f"{n}: token")
        return Somebody(key, email, account, phone)
