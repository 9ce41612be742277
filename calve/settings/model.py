"""The shape of calve.yaml: every key and its type, errors of single keys, and the shape as a JSON Schema.

A test compares docs/configuration.md with it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from calve.config.job import Auth, Service
from calve.settings import fields
from calve.settings.entries.deploy import (
    AlertsSection,
    JobSection,
    MskSection,
    NetworkSection,
    RotateSection,
    rotation_problems,
)
from calve.settings.entries.publish import ExportSection, PublishSection
from calve.settings.entries.sources import RegistrySection
from calve.settings.entries.steps import MaskingSection
from calve.settings.entries.tables import MaintenanceOptions, TableOptions, TableSection
from calve.settings.fields import Section
from calve.settings.problems import Invalid, KeyPath, Problem, near_miss, one_of


class AuthSection(Section):
    """How the clients prove who they are to the brokers."""

    type: Auth = "none"
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    tls: bool | None = None
    ca_file: fields.File | None = None
    secret: fields.Secret | None = None
    emit_secret: fields.Secret | None = None
    rotate: RotateSection | None = None

    @property
    def encrypted(self) -> bool:
        return self.type != "none" and self.tls is not False

    def problems(self) -> Iterator[Problem]:
        sasl = self.type in {"sasl_plain", "sasl_scram"}
        needs_secret = sasl or self.type == "mtls"
        secrets = {"secret": self.secret, "emit_secret": self.emit_secret}
        useless = f"has no use with {self.type}"
        if needs_secret and self.secret is None:
            fix = "add `secret: env:NAME`, `file:PATH` or `aws:SECRET_ID`"
            yield Problem(("secret",), f"is missing: {self.type} needs it", fix)
        for key in [key for key, given in secrets.items() if given is not None and not needs_secret]:
            yield Problem((key,), useless, "remove it, or change `type`")
        if self.emit_secret is not None and self.emit_secret == self.secret:
            yield Problem(("emit_secret",), "is the same as `secret`", "remove it, or name another one")
        if self.rotate is not None and not sasl:
            yield Problem(("rotate",), useless, "remove it, or change `type`")
        else:
            yield from rotation_problems(self.rotate, secrets, cloud=self.type == "sasl_plain")
        if self.mechanism and self.type != "sasl_scram":
            yield Problem(("mechanism",), useless, "remove it, or use `type: sasl_scram`")
        if self.tls is not None and not sasl:
            yield Problem(("tls",), useless, "remove it; `type: tls` encrypts without a password")
        elif self.ca_file and not self.encrypted:
            yield Problem(("ca_file",), "has no use without TLS", "remove it, or encrypt the connection")


class KafkaSection(Section):
    """The cluster to read from. Absent: the embedded broker."""

    bootstrap_servers: fields.Servers | None = None
    msk: MskSection | None = None
    auth: AuthSection | None = None

    @property
    def authentication(self) -> AuthSection:
        return self.auth or AuthSection(type="msk_iam" if self.msk else "none")


REST_ONLY = ("uri", "warehouse", "secret", "scope", "token_url")


class CatalogSection(Section):
    """What holds the tables. Absent: the Glue Data Catalog."""

    type: Service
    uri: fields.Url | None = None
    warehouse: fields.Text | None = None
    secret: fields.Secret | None = None
    scope: fields.Text | None = None
    token_url: fields.Url | None = None
    table_bucket: fields.TableBucket | None = None

    def problems(self) -> Iterator[Problem]:
        needed = {"rest": "uri", "s3tables": "table_bucket"}.get(self.type)
        useless = {"glue": (*REST_ONLY, "table_bucket"), "rest": ("table_bucket",), "s3tables": REST_ONLY}
        for key in [each for each in useless[self.type] if getattr(self, each) is not None]:
            yield Problem((key,), f"has no use with `type: {self.type}`", "remove it, or change `type`")
        if needed and getattr(self, needed) is None:
            yield Problem((needed,), "is missing", f"add `{needed}:`")
        for key in ("scope", "token_url"):
            if getattr(self, key) is not None and self.secret is None and self.type == "rest":
                fix = "remove it, or add `secret:`, which holds `client_id` and `client_secret`"
                yield Problem((key,), "has no use without `secret`", fix)


class LakeSection(Section):
    """Where the tables live."""

    database: fields.Database | None = None
    namespace: Literal["database", "cluster_id"] = "database"
    cluster_ids: fields.ClusterIds | None = None
    bucket: fields.Bucket | None = None
    prefix: fields.Prefix | None = None
    region: fields.Region | None = None
    kms_key: fields.One | None = None
    import_database: bool = False
    catalog: CatalogSection = CatalogSection(type="glue")

    def problems(self) -> Iterator[Problem]:
        kind = self.catalog.type
        if kind != "glue":
            for key in ("import_database", "cluster_ids"):
                if getattr(self, key):
                    yield Problem((key,), f"has no use with a catalog of `type: {kind}`", "remove it")
            if self.namespace != "database":
                yield Problem(("namespace",), "needs the Glue Data Catalog", "remove it")
        if kind == "s3tables":
            if self.kms_key:
                yield Problem(("kms_key",), "has no use: the table bucket has a key of its own", "remove it")
            if self.database and ("-" in self.database or self.database.startswith(("_", "aws"))):
                reason = f'"{self.database}" cannot be a namespace of S3 Tables'
                yield Problem(("database",), reason, "use a-z, 0-9 and _, and begin with neither _ nor aws")
            at = self.catalog.table_bucket and self.catalog.table_bucket.split(":")[3]
            if at and self.region not in (None, at):
                yield Problem(("region",), f"{self.region} is not that of the table bucket", f"use {at}")
        if self.cluster_ids and self.namespace != "cluster_id":
            yield Problem(("cluster_ids",), "has no use", "remove it, or add `namespace: cluster_id`")


class DefaultsSection(TableOptions):
    """Options of every table that does not set them itself."""

    maintenance: MaintenanceOptions | None = None


class Configuration(Section):
    """The file as a whole."""

    name: fields.Deployment
    kafka: KafkaSection | None = None
    registry: RegistrySection | None = None
    lake: LakeSection = LakeSection()
    masking: MaskingSection | None = None
    network: NetworkSection | None = None
    jobs: dict[fields.JobName, JobSection] | None = None
    alerts: AlertsSection = AlertsSection()
    defaults: DefaultsSection = DefaultsSection()
    tables: dict[fields.TableKey, TableSection] = Field(min_length=1)
    exports: dict[fields.ExportName, ExportSection] = Field(default_factory=dict)
    publish: PublishSection | None = None


def _sections(section: type[Section], path: KeyPath = ()) -> Iterator[tuple[KeyPath, type[Section]]]:
    """A section and all below it, each with its path; `<name>` stands for a key that the user chooses."""
    yield path, section
    for key, field in section.keys().items():
        if inner := _section_in(field.annotation):
            named = ("<name>",) if key in NAMED and not path else ()
            yield from _sections(inner, (*path, key, *named))


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that a type is, or has as an alternative, as items or as values."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for each in get_args(annotation) if (found := _section_in(each))), None)


NAMED = ("jobs", "tables", "exports")
SECTIONS: dict[KeyPath, type[Section]] = dict(_sections(Configuration))


_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_FORMS = {"list_type": "write it as [a, b]", "dict_type": "write it as {name: value}"}


def configuration(values: Mapping[str, Any], folder: Path) -> tuple[Configuration | None, list[Problem]]:
    """The validated configuration, or None and every problem of a single key. folder: of calve.yaml."""
    try:
        return Configuration.model_validate(values, context=folder), []
    except ValidationError as error:
        found = error.errors(include_url=False)
        return None, [problem for each in found for problem in _problems(each)]


def _problems(error: ErrorDetails) -> Iterator[Problem]:
    path: KeyPath = tuple(str(part) for part in error["loc"] if part != "[key]")
    raw, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            yield _unknown(path)
        case "missing":
            yield Problem(path, "is missing", f"add `{path[-1]}:`")
        case "literal_error":
            yield _not_allowed(path, raw, str(context["expected"]))
        case "value_error" if isinstance(invalid := context["error"], Invalid):
            for each in invalid.problems:
                yield Problem((*path, *each.path), each.reason, each.fix)
        case "too_short" | "string_too_short":
            fix = "name at least one" if error["type"] == "too_short" else "write a text, or remove the key"
            yield Problem(path, "is empty", fix)
        case "greater_than_equal" | "less_than_equal":
            bound, what = next(iter(context.items()))
            reason = f"{raw} is too {'small' if bound == 'ge' else 'large'}"
            yield Problem(path, reason, f"use {what:,} or {'more' if bound == 'ge' else 'less'}")
        case kind if kind in _KINDS:
            quote = isinstance(raw, int | float) and kind == "string_type"
            yield Problem(path, f"must be {_KINDS[kind]}", "put it in quotes" if quote else _FORMS.get(kind))
        case _:
            yield Problem(path, error["msg"])


def _unknown(path: KeyPath) -> Problem:
    above = path[:-1]
    if len(above) >= 2 and above[0] in NAMED:
        above = (above[0], "<name>", *(each for each in above[2:] if not each.isdigit()))
    section = SECTIONS.get(above)
    known = list(section.keys()) if section else []
    fix = near_miss(path[-1], known) or (f"known here: {', '.join(known)}" if known else "remove it")
    return Problem(path, "is not a known key", fix)


def _not_allowed(path: KeyPath, raw: Any, expected: str) -> Problem:
    choices = re.findall(r"'([^']*)'", expected) or re.findall(r"\d+", expected)
    if not isinstance(raw, str | int | float):
        return Problem(path, f"must be {one_of(choices)}")
    guess = near_miss(str(raw), choices)
    return Problem(
        path,
        f'"{raw}" cannot be used',
        f"{guess} Use {one_of(choices)}" if guess else f"use {one_of(choices)}",
    )


DIALECT = "http://json-schema.org/draft-07/schema#"
"""The newest one that editors of YAML know whole."""


def json_schema() -> dict[str, Any]:
    """By this, editors complete and check calve.yaml. It knows keys and single values, not how they fit together."""
    schema = _as_written(Configuration.model_json_schema())
    described = json.loads(Path(__file__).with_name("descriptions.json").read_text(encoding="utf-8"))
    for path, section in SECTIONS.items():
        keys = (schema["$defs"][section.__name__] if path else schema)["properties"]
        for key, text in described[".".join(path)].items():
            keys[key].setdefault("description", text)
    return {"$schema": DIALECT, "title": "calve.yaml", **schema}


def _as_written(node: Any) -> Any:
    """Without pydantic's titles, parsed defaults and their bounds. A section or optional key may be there without a value."""
    if isinstance(node, list):
        return [_as_written(each) for each in node]
    if not isinstance(node, dict):
        return node
    apart = {"title", "default", "properties"}
    apart |= {"minimum", "maximum"} if node.get("type") == "string" else set()
    found = {key: _as_written(value) for key, value in node.items() if key not in apart}
    if isinstance(sections := node.get("additionalProperties"), dict) and "$ref" in sections:
        found["additionalProperties"] = _or_nothing(sections)
    if "properties" in node:
        keys = {name: _as_written(value) for name, value in node["properties"].items()}
        needed = node.get("required", ())
        found["properties"] = {
            name: each if name in needed else _or_nothing(each) for name, each in keys.items()
        }
    return found


def _or_nothing(node: dict[str, Any]) -> dict[str, Any]:
    nothing = {"type": "null"}
    return node if nothing in node.get("anyOf", ()) else {"anyOf": [node, nothing]}
