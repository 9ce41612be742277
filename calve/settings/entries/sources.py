"""How the values and the keys of a topic are read, and the shape of `registry`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import Field

from calve.names import FIELD_NAME, SYSTEM_COLUMN
from calve.schema.documents import AS_TEXT
from calve.schema.inference import INFER, MOST_COLUMNS, MOST_DEPTH, REST, Infer
from calve.settings import fields
from calve.settings.entries.deploy import RotateSection, rotation_problems
from calve.settings.fields import Section
from calve.settings.problems import KeyPath, Problem

CONFLUENT_ONLY = ("url", "secret", "ca_file", "client_certificate", "oauth", "rotate")
GLUE_ONLY = ("name", "region")
InferredType = Literal["boolean", "long", "double", "string", "date", "timestamptz", "json"]


class OAuthSection(Section):
    """Client credentials of OAuth 2.0 in the place of basic authentication."""

    token_url: fields.Url
    scope: fields.Text | None = None
    cluster: fields.Text | None = None
    identity_pool: fields.Text | None = None


class RegistrySection(Section):
    """The schema registry. Absent: the embedded one."""

    type: Literal["confluent", "glue"] = "confluent"
    url: fields.Url | None = None
    secret: fields.Secret | None = None
    ca_file: fields.File | None = None
    client_certificate: fields.Secret | None = None
    oauth: OAuthSection | None = None
    rotate: RotateSection | None = None
    name: fields.One | None = None
    region: fields.Region | None = None

    def problems(self) -> Iterator[Problem]:
        needed, useless = ("name", CONFLUENT_ONLY) if self.type == "glue" else ("url", GLUE_ONLY)
        for key in [each for each in useless if getattr(self, each) is not None]:
            yield Problem((key,), f"has no use with `type: {self.type}`", "remove it, or change `type`")
        if getattr(self, needed) is None:
            yield Problem((needed,), "is missing", f"add `{needed}:`")
        if self.oauth and not self.secret:
            fix = "add `secret: aws:SECRET_ID`, which holds `client_id` and `client_secret`"
            yield Problem(("secret",), "is missing: oauth needs it", fix)
        if self.rotate and (self.oauth or not self.secret):
            fix = "remove it, or name API keys of Confluent Cloud: `secret: aws:SECRET_ID`"
            yield Problem(("rotate",), "has no use without basic authentication", fix)
        else:
            yield from rotation_problems(self.rotate, {"secret": self.secret}, cloud=True)
        if self.client_certificate and self.url and not self.url.startswith("https"):
            yield Problem(("client_certificate",), "has no use without https", "remove it")


class PartSection(Section):
    """What values and keys have in common."""

    format: Literal["registry", "avro", "json", "protobuf", "string", "bytes"] = "registry"
    prefix: Literal["confluent", "none"] | None = None
    subject: fields.Text | None = None
    schema_: fields.Text | None = Field(default=None, alias="schema")
    message: fields.Text | None = None

    @property
    def kept(self) -> bool:
        """Whether they are one column, as they are."""
        return self.format in {"string", "bytes"}

    def problems(self) -> Iterator[Problem]:
        declared = self.format != "registry" and not self.kept
        if declared and self.schema_ is None:
            fix = "add `schema: FILE`, or remove `format`, so that the registry is used"
            yield Problem(("schema",), f"is missing: `format: {self.format}` needs it", fix)
        if self.schema_ is not None and not declared:
            fix = "remove it, or add `format: avro`, `json` or `protobuf`"
            yield Problem(("schema",), self._useless, fix)
        if self.format != "registry":
            for key, given in (("subject", self.subject), ("prefix", self.prefix == "confluent")):
                if given:
                    yield Problem((key,), f"{self._useless}: no registry is used", "remove it")
        if self.subject is not None and self.subject.startswith(":."):
            reason = "is a subject of a context, and ids of records are looked up in the context of the registry's url"
            fix = "name the context in `registry.url`: `https://HOST/contexts/.NAME`, and the subject without it"
            yield Problem(("subject",), reason, fix)
        if self.message is not None and self.format not in {"registry", "protobuf"}:
            yield Problem(("message",), f"{self._useless}: only Protobuf has messages", "remove it")

    @property
    def _useless(self) -> str:
        return f"has no use with `format: {self.format}`"


class InferSection(Section):
    """The columns that records may make, with `schema: infer`."""

    columns: int = Field(default=Infer().columns, ge=1, le=MOST_COLUMNS)
    depth: int = Field(default=Infer().depth, ge=1, le=MOST_DEPTH)
    types: dict[fields.FieldPath, InferredType] = Field(default_factory=dict)

    def problems(self) -> Iterator[Problem]:
        if len(self.types) > self.columns:
            reason = f"has {len(self.types)} columns, and the table at most {self.columns}"
            yield Problem(("types",), reason, "raise `columns`, or remove some")
        for path in self.types:
            inside = next((each for each in self.types if path.lower().startswith(f"{each.lower()}.")), None)
            alike = next((each for each in self.types if each != path and each.lower() == path.lower()), None)
            if inside:
                reason = f"is a field of {inside}, which has no fields with `{self.types[inside]}`"
                yield Problem(("types", path), reason, "remove one")
            elif alike:
                yield Problem(("types", path), f"differs from {alike} only by case", "remove one")
            elif path.count(".") >= self.depth:
                yield Problem(("types", path), f"is deeper than {self.depth}", "raise `depth`, or remove it")
            elif any(not FIELD_NAME.fullmatch(each) for each in path.split(".")):
                yield Problem(("types", path), "is not a column", "use letters, digits and _")


class SourceSection(PartSection):
    """How the values of the topic are read."""

    rest: fields.ColumnName | None = None
    column: fields.ColumnName | None = None
    document: fields.Text | None = None
    infer: InferSection | None = None
    cloudevents: fields.ColumnName | None = None

    @property
    def infers(self) -> bool:
        return self.format == "json" and self.schema_ == INFER

    @property
    def rest_column(self) -> str | None:
        return self.rest or (REST if self.infers else None)

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.infer is not None and not self.infers:
            fix = "remove it, or add `format: json` and `schema: infer`"
            yield Problem(("infer",), "has no use without `schema: infer`", fix)
        if self.schema_ == INFER and self.format in {"avro", "protobuf"}:
            fix = "name a schema file, or use `format: json`"
            yield Problem(("schema",), f"{self._useless}: only JSON says the names of its fields", fix)
        if self.rest is not None and self.document == AS_TEXT:
            reason = "has no use with `document: text`, which keeps all"
            yield Problem(("rest",), reason, "remove it, or declare columns: `document: FILE`")
        if self.rest is not None and self.document is None and self.format != "json":
            yield Problem(("rest",), self._useless, "remove it, or add `format: json` and `schema: FILE`")
        if self.column is not None and not self.kept:
            yield Problem(("column",), self._useless, "remove it: the fields of the schema are the columns")


class KeySection(PartSection):
    """How the keys of the topic are read, into one column."""

    column: fields.ColumnName = "key"


def useless_beside_inference(names: Iterable[str]) -> Iterator[Problem]:
    """A column that appears by itself is in no step, and rows that replace others would hide the records that made it."""
    for name in names:
        fix = "remove it, or name a schema: `schema: FILE`"
        yield Problem((name,), "cannot be used with `schema: infer`", fix)


def unknown_beside_inference(
    value: SourceSection, key: KeySection | None, named: Iterable[tuple[KeyPath, str]]
) -> Iterator[Problem]:
    """named: columns that the table must have from its start, and where calve.yaml names them."""
    types = value.infer.types if value.infer else {}
    taken = {"rest": value.rest_column, "key": key.column if key else None, "cloudevents": value.cloudevents}
    owners = {column.lower(): part for part, column in taken.items() if column}
    for path in types:
        if part := owners.get(path.partition(".")[0].lower()):
            said = "key: {column: NAME}" if part == "key" else f"{part}: NAME"
            fix = f"remove it, or give that column another name: `{said}`"
            yield Problem(("value", "infer", "types", path), f"is the column of `{part}`", fix)
    for place, path in named:
        if path not in types and path.partition(".")[0].lower() not in {*owners, SYSTEM_COLUMN}:
            kind = "timestamptz" if place == ("event_time",) else "TYPE"
            fix = f"add `infer: {{types: {{{path}: {kind}}}}}` to `value`"
            yield Problem(place, f"names {path}, and no record has made it yet", fix)
