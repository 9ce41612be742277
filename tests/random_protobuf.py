"""Random Protobuf messages of every type, and bytes of them in every form that the wire allows, and some that it does not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from tests.random_avro import NUMBERS, WIDE

Write = Callable[[], bytes]
"""Writes the fields of a message."""
VARINT = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum")
FIXED = {"fixed32": 4, "sfixed32": 4, "float": 4, "fixed64": 8, "sfixed64": 8, "double": 8}
KNOWN = {
    "google.protobuf.Timestamp": {1: "varint", 2: "varint"},
    "google.type.Date": {1: "varint", 2: "varint", 3: "varint"},
    "google.protobuf.Int64Value": {1: "varint"},
    "google.protobuf.StringValue": {1: "text"},
    "google.protobuf.DoubleValue": {1: "double"},
    "google.protobuf.Duration": {1: "varint", 2: "varint"},
}
IMPORTS = (
    "google/protobuf/timestamp",
    "google/type/date",
    "google/protobuf/wrappers",
    "google/protobuf/duration",
)
KEYS = ("string", "int32", "uint64", "bool", "sint64", "fixed32")
SPANS = [0, 1, 2, 28, 29, 30, 31, 12, 13, 2020, 9999, 10_000, 10**9 - 1000, 10**9, 253_402_300_799]


@dataclass
class Schemas:
    """Makes the text of a file whose first message is `Top`, and what writes it."""

    random: Random
    numbers: count[int] = field(default_factory=lambda: count(1))

    def top(self) -> tuple[str, Write]:
        syntax = self.random.choice(["proto3", "proto3", "proto2"])
        self.label = "optional " if syntax == "proto2" else ""
        text, write = self.message("Top", 0)
        imports = "".join(f'import "{each}.proto"; ' for each in IMPORTS)
        return f'syntax = "{syntax}"; {imports}{text}', write

    def message(self, name: str, depth: int) -> tuple[str, Write]:
        made = [self.field(depth) for _ in range(self.random.randint(1, 5 if depth == 0 else 3))]
        writes = [write for _, write in made]

        def write() -> bytes:
            parts = [each() for each in writes if self.random.random() < 0.85]
            if self.random.random() < 0.15:
                parts += [each() for each in self.random.sample(writes, 1)]
            if self.random.random() < 0.1:
                parts.append(self.strange())
            self.random.shuffle(parts)
            return b"".join(parts)

        return f"message {name} {{ {' '.join(text for text, _ in made)} }}", write

    def field(self, depth: int) -> tuple[str, Write]:
        number = next(self.numbers)
        kind, declared, value = self.kind(depth, number)
        name = f"f{number}"
        match self.random.randrange(7):
            case 0 | 1:
                packed = self.random.choice(["", "", " [packed = false]"]) if self.is_packable(kind) else ""
                text = f"{declared} repeated {kind} {name} = {number}{packed};"
                return text, lambda: self.repeated(number, kind, value)
            case 2:
                key = self.random.choice(KEYS)
                text = f"{declared} map<{key}, {kind}> {name} = {number};"
                return text, lambda: self.entries(number, key, kind, value)
            case 3 if depth < 2:
                other = next(self.numbers)
                inner, declared_inner, second = self.kind(depth, other)
                text = f"{declared} {declared_inner} oneof o{number} {{ {kind} {name} = {number}; {inner} f{other} = {other}; }}"
                return text, lambda: self.random.choice(
                    [lambda: self.tagged(number, kind, value), lambda: self.tagged(other, inner, second)]
                )()
            case 4:
                return f"{declared} optional {kind} {name} = {number};", lambda: self.tagged(
                    number, kind, value
                )
        text = f"{declared} {self.label}{kind} {name} = {number};"
        return text, lambda: self.tagged(number, kind, value)

    def kind(self, depth: int, number: int) -> tuple[str, str, Write]:
        """The name of a type, the text that defines it, and what writes its values."""
        choices = [*VARINT, *FIXED, "string", "bytes", *KNOWN, *(["message"] * 4 if depth < 2 else [])]
        kind = self.random.choice(choices)
        if kind == "message":
            text, write = self.message(f"M{number}", depth + 1)
            return f"M{number}", text, lambda: sized(write())
        if kind == "enum":
            return (
                f"E{number}",
                f"enum E{number} {{ A{number} = 0; B{number} = 1; C{number} = 7; }}",
                self.varint,
            )
        if kind in KNOWN:
            return kind, "", lambda: sized(b"".join(self.part(*each) for each in KNOWN[kind].items()))
        return kind, "", self.scalar(kind)

    def scalar(self, kind: str) -> Write:
        if kind in FIXED:
            return lambda: self.fixed(FIXED[kind])
        return self.text if kind == "string" else self.raw if kind == "bytes" else self.varint

    def is_packable(self, kind: str) -> bool:
        return kind in VARINT or kind in FIXED or kind.startswith("E")

    def wire(self, kind: str) -> int:
        if kind in FIXED:
            return 5 if FIXED[kind] == 4 else 1
        return 0 if self.is_packable(kind) else 2

    def tagged(self, number: int, kind: str, value: Write) -> bytes:
        return varint(number << 3 | self.wire(kind)) + value()

    def repeated(self, number: int, kind: str, value: Write) -> bytes:
        size = self.random.randrange(4)
        if self.is_packable(kind) and self.random.random() < 0.6:
            return varint(number << 3 | 2) + sized(b"".join(value() for _ in range(size)))
        return b"".join(self.tagged(number, kind, value) for _ in range(size))

    def entries(self, number: int, key: str, kind: str, value: Write) -> bytes:
        found = b""
        for _ in range(self.random.randrange(3)):
            parts = [self.tagged(1, key, self.scalar(key)), self.tagged(2, kind, value)]
            kept = [each for each in parts if self.random.random() < 0.9]
            self.random.shuffle(kept)
            found += varint(number << 3 | 2) + sized(b"".join(kept))
        return found

    def part(self, number: int, kind: str) -> bytes:
        if self.random.random() < 0.15:
            return b""
        if kind == "varint":
            return varint(number << 3) + varint(self.random.choice(SPANS))
        return (
            self.tagged(number, kind, self.text)
            if kind == "text"
            else self.tagged(number, kind, self.scalar(kind))
        )

    def varint(self) -> bytes:
        number = self.random.choice([0, 1, 2, 7, self.random.randrange(2**32), *NUMBERS, *WIDE])
        found = varint(number % 2**64)
        if self.random.random() < 0.05 and len(found) < 9:
            found = found[:-1] + bytes([found[-1] | 0x80, 0])
        return found

    def fixed(self, size: int) -> bytes:
        number = self.random.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), -1.0])
        bits = struct.pack("<f" if size == 4 else "<d", number)
        return self.random.choice([bits, self.random.randbytes(size)])

    def text(self) -> bytes:
        return sized(self.random.choice([b"", b"a", "žąsis 🧊".encode(), b"x" * 130, b"\xff"]))

    def raw(self) -> bytes:
        return sized(self.random.randbytes(self.random.randrange(6)))

    def strange(self) -> bytes:
        """A field that the message does not have, or one of another wire type."""
        number = self.random.choice([*range(1, 30), 2**29 - 1, 536_870_911])
        wire = self.random.choice([0, 1, 2, 3, 4, 5])
        content = {0: self.varint, 1: lambda: self.fixed(8), 2: self.text, 5: lambda: self.fixed(4)}
        return varint(number << 3 | wire) + content.get(wire, lambda: b"")()


def varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def sized(content: bytes) -> bytes:
    return varint(len(content)) + content
