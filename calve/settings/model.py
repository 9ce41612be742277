"""The shape of calve.yaml: every key, its type and its sentence in docs/configuration.md; and errors of single keys."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from calve.config.job import Auth
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
    """`none`, `tls`, `sasl_plain`, `sasl_scram`, `msk_iam` or `mtls`. Default: `none`"""
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """With `sasl_scram`: `SCRAM-SHA-256` or `SCRAM-SHA-512`. Default: `SCRAM-SHA-512`"""
    tls: bool | None = None
    """With `sasl_plain` and `sasl_scram`: encrypt the connection. Default: `true`"""
    ca_file: fields.Text | None = None
    """PEM file of the authorities that sign the brokers' certificates, relative to calve.yaml. Default: the
    system's"""
    secret: fields.Secret | None = None
    """`username` and `password` of SASL, or `certificate` and `key` of `mtls`; see Secrets"""
    emit_secret: fields.Secret | None = None
    """The same of another principal, which writes the output topics. Default: `secret`"""
    rotate: RotateSection | None = None
    """See `kafka.auth.rotate`. Default: keys are changed by hand"""

    @property
    def encrypted(self) -> bool:
        """Whether the connection uses TLS."""
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
            yield Problem(("emit_secret",), "is that of `secret`", "remove it, or name another one")
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
    """`host:port`, several of them separated by commas; needed, unless the stack makes the cluster"""
    msk: MskSection | None = None
    """See `kafka.msk`. Default: some other cluster"""
    auth: AuthSection | None = None
    """See `kafka.auth`. Default: no encryption and no password; with `msk`, `type: msk_iam`"""

    @property
    def authentication(self) -> AuthSection:
        """`auth`, or its default."""
        return self.auth or AuthSection(type="msk_iam" if self.msk else "none")


class LakeSection(Section):
    """Where the tables live."""

    database: fields.Database | None = None
    """Glue database. Default: `name`, with `_` for `-`"""
    namespace: Literal["database", "cluster_id"] = "database"
    """`database`: all tables in `database`; `cluster_id`: in one named after the Kafka cluster. Default:
    `database`"""
    bucket: fields.Bucket | None = None
    """Existing S3 bucket; it is never deleted. Default: the stack's"""
    prefix: fields.Prefix | None = None
    """Folder in the bucket, such as `lake/raw`"""
    region: fields.Region | None = None
    """AWS region. Default: the stack's, else `us-east-1`"""
    kms_key: fields.Text | None = None
    """ARN of an existing key that encrypts the tables' files. Default: the stack makes one with its bucket"""
    import_database: bool = False
    """`true`: the Glue database exists already; it is never deleted. Default: `false`"""


class DefaultsSection(TableOptions):
    """Options of every table that does not set them itself."""

    maintenance: MaintenanceOptions | None = None
    """See `defaults.maintenance`. Default: as said there"""


class Configuration(Section):
    """The file as a whole."""

    name: fields.Deployment
    """Name of the deployment; it is a part of every name that is made in AWS"""
    kafka: KafkaSection | None = None
    """See `kafka`"""
    registry: RegistrySection | None = None
    """See `registry`"""
    lake: LakeSection = LakeSection()
    """See `lake`"""
    masking: MaskingSection | None = None
    """See `masking`. Default: no table masks"""
    network: NetworkSection | None = None
    """See `network`"""
    jobs: dict[fields.JobName, JobSection] | None = None
    """See `jobs.<name>`"""
    alerts: AlertsSection = AlertsSection()
    """See `alerts`"""
    defaults: DefaultsSection = DefaultsSection()
    """See `defaults`"""
    tables: dict[fields.TableKey, TableSection] = Field(min_length=1)
    """See `tables.<name>`"""
    exports: dict[fields.ExportName, ExportSection] = Field(default_factory=dict)
    """See `exports.<name>`"""
    publish: PublishSection | None = None
    """See `publish`. Default: the tables are in Glue alone"""


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


def section_at(path: KeyPath) -> type[Section] | None:
    """The section whose keys are directly under `path`; None if there is none."""
    if len(path) >= 2 and path[0] in NAMED:
        path = (path[0], "<name>", *(each for each in path[2:] if not each.isdigit()))
    return SECTIONS.get(path)


_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_FORMS = {"list_type": "write it as [a, b]", "dict_type": "write it as {name: value}"}


def configuration(values: Mapping[str, Any]) -> tuple[Configuration | None, list[Problem]]:
    """The validated configuration, or None and every problem of a single key."""
    try:
        return Configuration.model_validate(values), []
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
    section = section_at(path[:-1])
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
