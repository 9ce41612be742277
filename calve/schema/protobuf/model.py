"""Protobuf files as messages, fields and enums; and the files that every serializer knows without a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SCALARS = frozenset(
    {
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    }
)  # fmt: skip


MAX_DEPTH = 64


class Presence(StrEnum):
    """Whether a field that is not written differs from one with its type's default."""

    IMPLICIT = "implicit"
    EXPLICIT = "explicit"
    REQUIRED = "required"


def presence_of(syntax: str, feature: Presence | None, *, required: bool, alone: bool) -> Presence:
    """The presence of a field. syntax: proto2, proto3 or editions, whose `feature` counts.

    alone: it is no member of a oneof and, in proto3, not optional.
    """
    if required:
        return Presence.REQUIRED
    if syntax == "editions" and alone:
        return feature or Presence.EXPLICIT
    return Presence.IMPLICIT if syntax == "proto3" and alone else Presence.EXPLICIT


@dataclass(slots=True, eq=False)
class Enum:
    """`name`: with the package and the enclosing messages."""

    name: str
    values: list[tuple[str, int]] = field(default_factory=list)

    @property
    def symbols(self) -> dict[int, str]:
        """The first name of each number."""
        return {number: name for name, number in reversed(self.values)}


@dataclass(slots=True, eq=False)
class Field:
    """One field.

    kind: a scalar type, `message`, `group` or `enum`; empty until `type_name` is resolved.
    type: the message or enum.
    oneof: the name of the oneof that it is a member of.
    params, tags: what `confluent.field_meta` says of it.
    """

    name: str
    number: int
    kind: str
    type_name: str = ""
    repeated: bool = False
    presence: Presence = Presence.EXPLICIT
    oneof: str | None = None
    doc: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    type: Message | Enum | None = None

    @property
    def message(self) -> Message | None:
        return self.type if isinstance(self.type, Message) else None

    @property
    def entry(self) -> tuple[Field, Field] | None:
        """Key and value of a map."""
        if self.message is None or not self.message.is_map_entry:
            return None
        key, value = self.message.fields
        return key, value


@dataclass(slots=True, eq=False)
class Message:
    """`name`: with the package and the enclosing messages. `messages`: the nested ones, in order."""

    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    is_map_entry: bool = False


@dataclass(slots=True, eq=False)
class File:
    """One .proto file; `imports`: the names of the files that it needs."""

    package: str = ""
    imports: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)


_HEAD = 'syntax = "proto3"; package '
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
WRAPPERS = {f"google.protobuf.{name}Value": name.lower() for name in _WRAPPERS}
TIMESTAMP, DATE, DECIMAL = "google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal"
MEMBERS: dict[str, dict[str, str]] = {
    TIMESTAMP: {"seconds": "int64", "nanos": "int32"},
    DATE: {"year": "int32", "month": "int32", "day": "int32"},
    DECIMAL: {"value": "bytes", "precision": "uint32", "scale": "int32"},
} | {name: {"value": kind} for name, kind in WRAPPERS.items()}
"""Messages that are one value. Such a message must have exactly these fields, numbered from 1."""

_GOOGLE = {
    "any": "message Any { string type_url = 1; bytes value = 2; }",
    "duration": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "empty": "message Empty {}",
    "field_mask": "message FieldMask { repeated string paths = 1; }",
    "source_context": "message SourceContext { string file_name = 1; }",
    "struct": """
        message Struct { map<string, Value> fields = 1; }
        message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3;
            bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }""",
    "timestamp": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "wrappers": "".join(f"message {name}Value {{ {name.lower()} value = 1; }}" for name in _WRAPPERS),
}
_TYPE = {
    "calendar_period": "enum CalendarPeriod { CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4;"
    " QUARTER = 5; HALF = 6; YEAR = 7; }",
    "color": 'import "google/protobuf/wrappers.proto"; message Color { float red = 1; float green = 2; float blue = 3;'
    " google.protobuf.FloatValue alpha = 4; }",
    "date": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "datetime": """import "google/protobuf/duration.proto"; message DateTime { int32 year = 1; int32 month = 2; int32 day = 3;
        int32 hours = 4; int32 minutes = 5; int32 seconds = 6; int32 nanos = 7;
        oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }
        message TimeZone { string id = 1; string version = 2; }""",
    "dayofweek": "enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4;"
    " FRIDAY = 5; SATURDAY = 6; SUNDAY = 7; }",
    "expr": "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }",
    "fraction": "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    "latlng": "message LatLng { double latitude = 1; double longitude = 2; }",
    "money": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "month": "enum Month { MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6;"
    " JULY = 7; AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12; }",
    "postal_address": """message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3;
        string postal_code = 4; string sorting_code = 5; string administrative_area = 6; string locality = 7;
        string sublocality = 8; repeated string address_lines = 9; repeated string recipients = 10;
        string organization = 11; }""",
    "quaternion": "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }",
    "timeofday": "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}
_CONFLUENT = {
    "decimal": "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "variant": "message Variant { bytes metadata = 1; bytes value = 2; }",
}
KNOWN_FILES = (
    {f"google/protobuf/{name}.proto": f"{_HEAD}google.protobuf; {text}" for name, text in _GOOGLE.items()}
    | {f"google/type/{name}.proto": f"{_HEAD}google.type; {text}" for name, text in _TYPE.items()}
    | {f"confluent/type/{name}.proto": f"{_HEAD}confluent.type; {text}" for name, text in _CONFLUENT.items()}
)
"""By import name. Files with options only (`confluent/meta.proto`) define no field types."""
