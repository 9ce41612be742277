"""How the values and the keys of a topic are read."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from calve.settings import fields
from calve.settings.problems import InvalidParts, Problem
from calve.settings.section import Section


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

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        declared = self.format != "registry" and not self.kept
        useless = f"has no use with `format: {self.format}`"
        problems = []
        if declared and self.schema_ is None:
            fix = "add `schema: FILE`, or remove `format`, so that the registry is asked"
            problems.append(Problem(("schema",), f"is missing: `format: {self.format}` needs it", fix))
        if self.schema_ is not None and not declared:
            fix = "remove it, or add `format: avro`, `json` or `protobuf`"
            problems.append(Problem(("schema",), useless, fix))
        if self.format != "registry":
            for key, given in (("subject", self.subject), ("prefix", self.prefix == "confluent")):
                if given:
                    problems.append(Problem((key,), f"{useless}: no registry is asked", "remove it"))
        if self.message is not None and self.format not in {"registry", "protobuf"}:
            problems.append(Problem(("message",), f"{useless}: only Protobuf has messages", "remove it"))
        if problems:
            raise InvalidParts(problems)
        return self


class SourceSection(PartSection):
    """How the values of the topic are read."""

    rest: fields.ColumnName | None = None
    """With `format: json`: a column for the fields that the schema does not declare, as one JSON text. Default: they are
    ignored"""
    column: fields.ColumnName | None = None
    """With `format: string` and `bytes`: name of the column. Default: `value`"""

    @model_validator(mode="after")
    def _columns_have_a_use(self) -> Self:
        problems = []
        if self.rest is not None and self.format != "json":
            fix = "remove it, or add `format: json` and `schema: FILE`"
            problems.append(Problem(("rest",), f"has no use with `format: {self.format}`", fix))
        if self.column is not None and not self.kept:
            fix = "remove it: the fields of the schema are the columns"
            problems.append(Problem(("column",), f"has no use with `format: {self.format}`", fix))
        if problems:
            raise InvalidParts(problems)
        return self


class KeySection(PartSection):
    """How the keys of the topic are read, into one column: a struct, or a plain one where the schema is a plain type.
    Absent: they are kept as their bytes alone, in `_kafka.key`.
    """

    column: fields.ColumnName = "key"
    """Name of the column. Default: `key`"""
