"""The shape of `registry`."""

from typing import Literal, Self

from pydantic import model_validator

from calve.settings import fields
from calve.settings.problems import InvalidParts, Problem
from calve.settings.rotating import RotateSection, rotation_problems
from calve.settings.section import Section

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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        glue = self.type == "glue"
        needed, useless = ("name", CONFLUENT_ONLY) if glue else ("url", GLUE_ONLY)
        problems = [
            Problem((key,), f"has no use with `type: {self.type}`", "remove it, or change `type`")
            for key in useless
            if getattr(self, key) is not None
        ]
        if getattr(self, needed) is None:
            problems.append(Problem((needed,), "is missing", f"add `{needed}:`"))
        if self.oauth and not self.secret:
            fix = "add `secret: aws:SECRET_ID`, which holds `client_id` and `client_secret`"
            problems.append(Problem(("secret",), "is missing: oauth needs it", fix))
        if self.rotate and (self.oauth or not self.secret):
            fix = "remove it, or name API keys of Confluent Cloud: `secret: aws:SECRET_ID`"
            problems.append(Problem(("rotate",), "has no use without basic authentication", fix))
        else:
            problems += rotation_problems(self.rotate, {"secret": self.secret}, cloud=True)
        if self.client_certificate and self.url and not self.url.startswith("https"):
            problems.append(Problem(("client_certificate",), "has no use without https", "remove it"))
        if problems:
            raise InvalidParts(problems)
        return self
