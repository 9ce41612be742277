"""How the values and the keys of a topic are read, and the shape of `registry`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from calve.settings import fields
from calve.settings.entries.deploy import RotateSection, rotation_problems
from calve.settings.fields import Section
from calve.settings.problems import Problem

CONFLUENT_ONLY = ("url", "secret", "ca_file", "client_certificate", "oauth", "rotate")
GLUE_ONLY = ("name", "region")


class OAuthSection(Section):
    """Client credentials of OAuth 2.0 in the place of basic authentication; `registry.secret` holds `client_id` and
    `client_secret`.
    """

    token_url: fields.Url
    """Token endpoint of the identity provider"""
    scope: fields.Text | None = None
    """Scopes to ask for, separated by spaces. Default: none"""
    cluster: fields.Text | None = None
    """Confluent Cloud: the registry's logical cluster, `lsrc-...`"""
    identity_pool: fields.Text | None = None
    """Confluent Cloud: the identity pool, `pool-...`"""


class RegistrySection(Section):
    """The schema registry. Absent: the embedded one."""

    type: Literal["confluent", "glue"] = "confluent"
    """`confluent`: Confluent's REST interface, whoever serves it; `glue`: the AWS Glue Schema Registry. Default:
    `confluent`"""
    url: fields.Url | None = None
    """`https://host:port`, with the path that the server wants; needed with `confluent`"""
    secret: fields.Secret | None = None
    """`username` and `password` of basic authentication, or the client of `oauth`; see Secrets"""
    ca_file: fields.Text | None = None
    """PEM file of the authorities that sign the server's certificate, relative to calve.yaml. Default: the
    system's"""
    client_certificate: fields.Secret | None = None
    """`certificate` and `key` to show to a server that asks for them; see Secrets. Default: none"""
    oauth: OAuthSection | None = None
    """See `registry.oauth`. Default: basic authentication where there is a `secret`, else none"""
    rotate: RotateSection | None = None
    """See `registry.rotate`. Default: keys are changed by hand"""
    name: fields.Text | None = None
    """Name of the registry; needed with `glue`"""
    region: fields.Region | None = None
    """AWS region of a Glue registry. Default: the lake's"""

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
    """`registry`: what the schema in the registry says; `avro`, `json`, `protobuf`: as the file `schema` says; `string` (UTF-8)
    and `bytes`: one column, as they are. Default: `registry`"""
    prefix: Literal["confluent", "none"] | None = None
    """What they begin with, where a registry is asked: `confluent`: `0x00` and the schema's id; `none`: nothing, and all are
    read with the newest version. Default: `confluent`; with a Glue registry, what AWS's serializers write"""
    subject: fields.Text | None = None
    """Subject of their schemas in the registry, or a pattern of several, in which `*` stands for any characters:
    `com.acme.*`. What the topic holds of values of other subjects is then left to other tables. Default: the topic's
    name and `-value`, or `-key`; in a Glue registry the topic's name"""
    schema_: fields.Text | None = Field(default=None, alias="schema")
    """File of the schema that all of them were written with, relative to calve.yaml; with `format: avro`, `json` or `protobuf`.
    For JSON of Kafka Connect with its schema in every message: that `schema` as it stands"""
    message: fields.Text | None = None
    """With Protobuf: the message that they are, with or without its package, as `acme.Order`. What the topic holds of values
    of other messages is then left to other tables. Default: the first message of the file"""

    @property
    def kept(self) -> bool:
        """Whether they are one column, as they are."""
        return self.format in {"string", "bytes"}

    def problems(self) -> Iterator[Problem]:
        declared = self.format != "registry" and not self.kept
        if declared and self.schema_ is None:
            fix = "add `schema: FILE`, or remove `format`, so that the registry is asked"
            yield Problem(("schema",), f"is missing: `format: {self.format}` needs it", fix)
        if self.schema_ is not None and not declared:
            fix = "remove it, or add `format: avro`, `json` or `protobuf`"
            yield Problem(("schema",), self._useless, fix)
        if self.format != "registry":
            for key, given in (("subject", self.subject), ("prefix", self.prefix == "confluent")):
                if given:
                    yield Problem((key,), f"{self._useless}: no registry is asked", "remove it")
        if self.message is not None and self.format not in {"registry", "protobuf"}:
            yield Problem(("message",), f"{self._useless}: only Protobuf has messages", "remove it")

    @property
    def _useless(self) -> str:
        return f"has no use with `format: {self.format}`"


class SourceSection(PartSection):
    """How the values of the topic are read."""

    rest: fields.ColumnName | None = None
    """With `format: json`: a column for the fields that the schema does not declare, as one JSON text. Default: they are
    ignored"""
    column: fields.ColumnName | None = None
    """With `format: string` and `bytes`: name of the column. Default: `value`"""

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.rest is not None and self.format != "json":
            yield Problem(("rest",), self._useless, "remove it, or add `format: json` and `schema: FILE`")
        if self.column is not None and not self.kept:
            yield Problem(("column",), self._useless, "remove it: the fields of the schema are the columns")


class KeySection(PartSection):
    """How the keys of the topic are read, into one column: a struct, or a plain one where the schema is a plain type.
    Absent: they are kept as their bytes alone, in `_kafka.key`.
    """

    column: fields.ColumnName = "key"
    """Name of the column. Default: `key`"""
