"""The machine against another reader of ours (`tests.numpy_protobuf`): the same bytes are the same rows, or none."""

from __future__ import annotations

from random import Random, SystemRandom

import pyarrow as pa
import pytest

from calve.decoding.decode_plan import decoding, first_columns
from calve.decoding.field_quarantine import leaves
from calve.errors import CalveError
from calve.schema.protobuf.columns import Struct, Value
from calve.schema.wire import Schema
from calve.schema.writers import ProtobufWriter
from glue_jobs.columns import buffers
from glue_jobs.decode.explaining.protobuf_values import explain
from glue_jobs.decode.explaining.walk import Misfit, Walk
from glue_jobs.decode.protobuf import machine, program
from glue_jobs.decode.protobuf import values as kinds
from tests.columnar import plain
from tests.judged import judged, plan_of
from tests.numpy_protobuf import decoder as oracle
from tests.random_avro import mutated
from tests.random_protobuf import Schemas, sized, varint

NESTED = """
syntax = "proto2";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "google/type/date.proto";
message Top {
  oneof o { M m = 1; N n = 2; string s = 3; google.protobuf.Timestamp t = 4; }
  map<string, M> by = 5; optional M one = 6; repeated M many = 7; required int32 id = 900; repeated sint64 r = 8;
  message M {
    required int32 a = 1; repeated N l = 2; map<int32, N> e = 3; repeated fixed32 f = 6; optional N last = 7;
    oneof p { N n = 4; google.type.Date d = 5; Deep deep = 8; }
  }
  message N { optional bool b = 1; oneof q { Deep x = 2; google.protobuf.StringValue y = 3; bool z = 4; } required string k = 5; }
  message Deep { repeated string t = 1; map<bool, google.protobuf.Timestamp> u = 2; repeated google.protobuf.Int64Value v = 3; }
}
"""


def writers_of(random: Random, texts: list[str], *, some: bool) -> list[ProtobufWriter]:
    """Of versions of a schema. some: only some of their fields have columns."""
    versions = [Schema(7 + n, text, "PROTOBUF") for n, text in enumerate(texts)]
    columns = first_columns(versions[:1], "it")
    fields = [each for each in leaves(columns) if random.random() < 0.6] if some else None
    try:
        found = decoding(columns, versions, fields=fields).writers
    except CalveError:
        return []
    return [each for each in found if isinstance(each, ProtobufWriter) and each.plan.columns]


def same(values: list[bytes | None], writers: list[ProtobufWriter]) -> int:
    """Decode both ways, also in pieces and from the middle of an array; the number of good values."""
    framed = pa.array(values, pa.binary())
    cut = len(values) // 3
    found = judged(plan_of(writers), framed.slice(0, cut), framed.slice(cut))
    expected = plain(oracle.decode(framed, writers))
    found.validate(full=True)
    good = 0
    for value, one, other in zip(values, expected, plain(found), strict=True):
        where = (value or b"").hex()
        is_good = one is not None and one["good"] == "True"
        assert is_good == (other["reason"] is None), where
        if is_good:
            good += 1
            assert one["value"] == other["value"], where
    return good


def random_values(random: Random, count: int, *, some: bool) -> int:
    texts, writes = zip(*(Schemas(random).top() for _ in range(2)), strict=True)
    writers = writers_of(random, list(texts), some=some)
    values: list[bytes | None] = [None]
    for _ in range(count if writers else 0):
        place = random.randrange(2)
        payload = writes[place]()
        if random.random() < 0.2:
            payload += writes[place]()
        if random.random() < 0.4:
            payload = mutated(payload, random)
        values.append(b"\x00\x00\x00\x00" + bytes([7 + place, random.random() < 0.05]) + payload)
    return same(values, writers) if writers else 0


def nested(plan: Struct, random: Random, depth: int = 0) -> bytes:
    """Fields of a message in any order, most of them again and again."""
    found = []
    for _ in range(random.randrange(8 if depth else 16)):
        read = random.choice(plan.fields)
        inside = kinds.entry(read.key, read.value) if read.key else None
        wire, content = written(read.value, inside, random, depth)
        if read.repeated and wire != 2 and random.random() < 0.5:
            more = (written(read.value, None, random, depth)[1] for _ in range(random.randrange(4)))
            wire, content = 2, sized(content + b"".join(more))
        found.append(varint(read.number << 3 | (wire if random.random() < 0.99 else 5)) + content)
    return b"".join(found)


def written(value: Value, inside: Struct | None, random: Random, depth: int) -> tuple[int, bytes]:
    """A wire type and content."""
    if inside is None and value.kind in kinds.WIRES:
        wire, number = kinds.WIRES[value.kind], random.choice((0, 1, 2, 28, 1000, 2024, 2**40, 2**64 - 1))
        return wire, varint(number) if wire == 0 else random.randbytes(4 if wire == 5 else 8)
    if inside is None and not value.message and value.kind in ("string", "bytes"):
        return 2, sized(random.choice((b"", b"a", b"b", "žąsis 🧊".encode() * 3)))
    return 2, sized(nested(inside or value.message or kinds.members(value), random, depth + 1))


@pytest.mark.parametrize("count", [1_500, pytest.param(10_000, marks=pytest.mark.full)])
def test_fields_that_come_again_replace_or_extend(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(buffers, "ROOM", 5_000)
    random = Random(count)
    for some in (False, True):
        [writer] = writers_of(random, [NESTED], some=some)
        frame = writer.prefix
        values: list[bytes | None] = [
            frame + nested(writer.plan, random) + b"\xa0\x38\x07" for _ in range(count)
        ]
        assert same(values, [writer]) > count / 50
        explained(values[:300], writer)


def test_the_machine_has_the_numbers_of_the_program() -> None:
    names = [name for name in vars(program) if name.isupper() and name in vars(machine)]
    assert len(names) == program.WIDTH + 1
    assert [getattr(machine, name) for name in names] == [getattr(program, name) for name in names]
    kinds_of_machine = (machine.NUMBER, machine.BYTE_STRING, machine.TEXT, machine.MESSAGE, machine.SKIPPED)
    assert list(program.Kind) == list(kinds_of_machine)


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_a_string_is_what_python_decodes() -> None:
    edges = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
    begins = [bytes([first, second]) for first in range(256) for second in edges]
    ends = [
        b"",
        b"\x80",
        b"\xbf",
        b"\x7f",
        b"\xc0",
        b"\x80\x80",
        b"\xbf\xbf",
        b"\x80\x7f",
        b"\x80\xc0",
        b"\x80\x80\x80",
    ]
    texts = [begin + end for begin in begins for end in ends]
    [writer] = writers_of(Random(1), ['syntax = "proto3"; message Top { string s = 1; }'], some=False)
    for around in (b"", b"seven by", b"more than eight"):
        values = [writer.prefix + b"\x0a" + sized(around + each + around) for each in texts]
        found = judged(plan_of([writer]), pa.array(values, pa.binary()))
        assert [each is None for each in found.field("reason").to_pylist()] == list(map(is_text, texts))


def explained(values: list[bytes | None], writer: ProtobufWriter) -> None:
    """What is refused has an explanation, and nothing else has one."""
    found = judged(plan_of([writer]), pa.array(values, pa.binary()))
    for value, reason in zip(values, found.field("reason").to_pylist(), strict=True):
        good = reason is None
        try:
            explain(value or b"", writer, Walk("the value", 10**6))
        except Misfit:
            assert not good, (value or b"").hex()
        else:
            assert good, (value or b"").hex()


@pytest.mark.parametrize("some", [False, True])
def test_random_messages_and_mutations_of_them(*, some: bool) -> None:
    assert sum(random_values(Random(seed), 100, some=some) for seed in range(30)) > 500


@pytest.mark.full
def test_many_random_messages() -> None:
    for _ in range(2_000):
        seed = SystemRandom().getrandbits(64)
        print(f"seed of the schemas: {seed}")  # noqa: T201 shown where it fails
        random_values(Random(seed), 300, some=seed % 2 == 0)
