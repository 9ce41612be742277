"""The resolved configuration of one job. Glue job, Lambdas and CLI get it as JSON; `calve.settings` makes and validates it.

Standard library only: a Glue job cannot import native wheels from its extra Python files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Literal

from calve.config.maintenance import Maintenance
from calve.config.publishing import Announce, Emit
from calve.config.steps import Expect, Mask, Step, plain, tokens_by
from calve.errors import Fatal
from calve.modes.aggregate import Aggregate
from calve.modes.history import History
from calve.modes.mode import APPEND, Mode
from calve.modes.upsert import ChangeData, Deduplicate, Upsert
from calve.names import TableName, database_for_cluster
from calve.schema.columns import Json, Transform
from calve.schema.inference import Infer
from calve.stored import Stored

Auth = Literal["none", "tls", "sasl_plain", "sasl_scram", "msk_iam", "mtls"]
EngineChoice = Literal["auto", "columnar", "rows"]


@dataclass(frozen=True, slots=True)
class Kafka:
    """The connection to the cluster. Secrets are references, never values. emit_secret: for output topics; None: `secret`."""

    bootstrap_servers: str
    auth: Auth = "none"
    mechanism: str | None = None
    tls: bool = False
    ca_file: str | None = None
    secret: str | None = None
    emit_secret: str | None = None

    @property
    def output(self) -> Kafka:
        return replace(self, secret=self.emit_secret or self.secret)


@dataclass(frozen=True, slots=True)
class OAuth:
    """Client credentials of OAuth 2.0. `cluster` and `identity_pool` are Confluent Cloud's."""

    token_url: str
    scope: str | None = None
    cluster: str | None = None
    identity_pool: str | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """A Confluent-compatible schema registry.

    `secret` refers to a JSON object with `username` and `password`, under `oauth` with `client_id` and `client_secret`;
    `client_certificate` to one with `certificate` and `key`.
    """

    url: str
    secret: str | None = None
    ca_file: str | None = None
    oauth: OAuth | None = None
    client_certificate: str | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(each for each in (self.secret, self.client_certificate) if each)


@dataclass(frozen=True, slots=True)
class GlueRegistry:
    """A registry of the AWS Glue Schema Registry, read with the caller's credentials."""

    name: str
    region: str

    @property
    def secrets(self) -> tuple[str, ...]:
        return ()


AnyRegistry = Registry | GlueRegistry


@dataclass(frozen=True, slots=True)
class RestCatalog:
    """An Iceberg REST catalog that holds the tables. `warehouse`: its own name of the place of its tables.

    `secret` refers to a JSON object with `client_id` and `client_secret`; None: the catalog asks for none.
    """

    uri: str
    warehouse: str | None = None
    secret: str | None = None
    scope: str | None = None
    token_url: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        """Its properties in Iceberg's libraries, without the credential."""
        oauth = {
            "oauth2-server-uri": self.token_url or f"{self.uri}/v1/oauth/tokens",
            "scope": self.scope or "catalog",
        }
        return {
            "uri": self.uri,
            **({"warehouse": self.warehouse} if self.warehouse else {}),
            **(oauth if self.secret else {}),
        }


@dataclass(frozen=True, slots=True)
class S3Tables:
    """A table bucket of Amazon S3 Tables, which holds the tables and their files. `uri`: of its REST catalog.

    Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-integrating-open-source.html
    """

    bucket_arn: str
    uri: str
    region: str

    @property
    def secret(self) -> None:
        """It has none."""

    @property
    def properties(self) -> dict[str, str]:
        """Its properties in Iceberg's libraries. The caller's AWS credentials sign each request."""
        return {
            "uri": self.uri,
            "warehouse": self.bucket_arn,
            "rest.sigv4-enabled": "true",
            "rest.signing-name": "s3tables",
            "rest.signing-region": self.region,
        }


Catalog = S3Tables | RestCatalog
Service = Literal["glue", "rest", "s3tables"]
"""What holds the tables."""


@dataclass(frozen=True, slots=True)
class Lake:
    """The location of the tables. `warehouse`: an S3 URI without a trailing slash.

    catalog: holds the tables; None: the Glue Data Catalog. Under S3 Tables only reports, digests and exports are in `warehouse`.
    names_key: the bucket was imported, so `kms_key` encrypts only objects that are sent with its name.
    cluster_ids: under `namespace: cluster_id`, the clusters whose databases the job may write; empty: of any cluster.
    """

    database: str
    warehouse: str
    namespace: Literal["database", "cluster_id"] = "database"
    region: str = "us-east-1"
    endpoint: str | None = None
    kms_key: str | None = None
    names_key: bool = False
    cluster_ids: tuple[str, ...] = ()
    catalog: Catalog | None = None

    @property
    def secret(self) -> str | None:
        """The reference to the credentials of the catalog."""
        return self.catalog.secret if self.catalog else None

    @property
    def service(self) -> Service:
        match self.catalog:
            case None:
                return "glue"
            case RestCatalog():
                return "rest"
            case S3Tables():
                return "s3tables"


@dataclass(frozen=True, slots=True)
class Start:
    """The first offsets of a new topic: `timestamp_ms` since epoch, `offsets` by partition (next offset to read)."""

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp_ms: int | None = None
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many records the rounds of the last `within_s` may reject: `records`, or `share` of records read if that is more."""

    share: float = 0.01
    records: int = 1_000
    within_s: float = 3_600.0


PartName = Literal["value", "key"]


@dataclass(frozen=True, slots=True)
class Source:
    """How the values, or the keys, of a topic are decoded.

    subject: a name in the registry, or a pattern with `*`; None: the topic's. schema: the text of the only schema.
    rest: of undeclared JSON properties. column: of keys, and of values that are one column. message: None: the file's first.
    document: of MongoDB's events: the schema of documents (`calve.schema.documents.declared`); None: rows are no documents.
    infer: the columns of JSON come from its records; None: from a schema.
    cloudevents: the column of the attributes of CloudEvents, whose data the values are; None: the records are no CloudEvents.
    """

    subject: str | None = None
    format: Literal["registry", "avro", "json", "protobuf", "string", "bytes"] = "registry"
    prefix: Literal["confluent", "none"] = "confluent"
    schema: str | None = None
    rest: str | None = None
    column: str | None = None
    message: str | None = None
    document: str | None = None
    infer: Infer | None = None
    cloudevents: str | None = None

    @property
    def registered(self) -> bool:
        return self.format == "registry"

    @property
    def framed(self) -> bool:
        """True if each value begins with its schema id."""
        return self.registered and self.prefix != "none"


@dataclass(frozen=True, slots=True)
class Table:
    """One topic kept as one table; it has at most one mode. pattern: the entry whose pattern made it; None: that of its name.

    lineage: whether the table notes the fields that its columns come from.
    """

    name: str
    topic: str
    freshness_s: float = 60.0
    flush_bytes: int = 250_000_000
    partition_flush_bytes: int = 300_000_000
    start: Start = Start()
    event_time: str | None = None
    partition_by: tuple[Transform, ...] = ()
    sort_by: tuple[Transform, ...] = ()
    format_version: int = 2
    on_data_loss: Literal["suspend", "continue"] = "suspend"
    gaps: Literal["detect", "allow"] = "detect"
    on_error: Literal["dead_letter", "skip", "suspend"] = "dead_letter"
    dead_letter_budget: Budget = Budget()
    value: Source = Source()
    key: Source | None = None
    owner: str | None = None
    upsert: Upsert | None = None
    change_data: ChangeData | None = None
    history: History | None = None
    deduplicate: Deduplicate | None = None
    aggregate: Aggregate | None = None
    steps: tuple[Step, ...] = ()
    emit: Emit | None = None
    announce: Announce | None = None
    maintenance: Maintenance = field(default_factory=Maintenance)
    quarantine_new_fields: bool = False
    engine: EngineChoice = "auto"
    pattern: str | None = None
    lineage: bool = False

    @property
    def mode(self) -> Mode:
        """The only place that chooses a mode."""
        return self.upsert or self.change_data or self.history or self.deduplicate or self.aggregate or APPEND

    def mode_note(self, columns: Json) -> str | None:
        """As `Mode.note`, and which masking key hashes columns of its key: the tokens of another key would find no row."""
        note, by = self.mode.note(columns), self.hashed_key.values()
        return json.dumps(json.loads(note) | {"hashed_by": sorted({*by})}) if note and by else note

    @property
    def hashed_key(self) -> dict[str, str]:
        """The columns of the mode's key that are tokens of one masking key, with its id."""
        found = tokens_by(self.steps, {})
        return {path: by for path in self.mode.row_key if (by := found.get(plain(path)))}

    @property
    def count_by(self) -> str | None:
        return self.announce.count_by if self.announce else None

    @property
    def masks(self) -> bool:
        """Whether personal data is masked, so that records may not be kept unencrypted."""
        return any(isinstance(each, Mask) and each.masks for each in self.steps)

    @property
    def reports_expectations(self) -> bool:
        """Whether the job may report that too few records meet an expectation."""
        expected = (each for each in self.steps if isinstance(each, Expect))
        return any(each.at_least is not None and not each.suspends for each in expected)

    @property
    def registered(self) -> bool:
        """True if the registry is needed, for reading or for output schemas."""
        of_key = self.key is not None and self.key.registered
        return self.value.registered or of_key or self.emit is not None


@dataclass(frozen=True, slots=True)
class Entry:
    """The part of an entry of `tables` that other jobs need. With `pattern`, name and topic are patterns.

    output: the topic that it emits to.
    """

    name: str
    topic: str
    pattern: bool = False
    output: str | None = None


def part_of(topic: str, count: int) -> int:
    """The part that has a topic, from 1 to `count`: the one with the greatest SHA-256 of `PART/TOPIC` (rendezvous hashing).

    Frozen: another answer would move tables. With another count few topics move: to `count` + 1 parts only those of the new part.
    """
    return max(range(1, count + 1), key=lambda part: sha256(f"{part}/{topic}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Share:
    """One of the `count` parts of a job, the entry `of` of `jobs`. part: from 1 on."""

    of: str
    part: int
    count: int

    def has(self, topic: str) -> bool:
        return part_of(topic, self.count) == self.part


def part_name(of: str, part: int) -> str:
    """The job's name of a part."""
    return f"{of}-{part}"


@dataclass(frozen=True, slots=True)
class Job(Stored):
    """The configuration of one ingest job. `registry`: None if no table needs one. masking: the secret with the keys that hash
    personal data (`calve.config.masking_keys`); None if no table masks any.

    patterns: the common configuration of tables of matching topics: `topic` is the expression, `name` names the tables
    (`calve.config.topics`). entries: of the whole deployment, in the order of calve.yaml; none if the job has no patterns.
    share: which topics the job has of its entry in `jobs`; None: all.
    """

    name: str
    job: str
    kafka: Kafka
    registry: AnyRegistry | None
    lake: Lake
    tables: tuple[Table, ...]
    masking: str | None = None
    patterns: tuple[Table, ...] = ()
    entries: tuple[Entry, ...] = ()
    share: Share | None = None

    @property
    def of(self) -> str:
        """The name of its entry in `jobs`."""
        return self.share.of if self.share else self.job

    def has(self, topic: str) -> bool:
        """Whether the job has a topic that one of its entries names or matches."""
        return self.share is None or self.share.has(topic)

    def database(self, cluster_database: str | None = None) -> str:
        """The database of the tables; `cluster_database` is required under `namespace: cluster_id`.

        Raises Fatal: `lake.cluster_ids` does not have this cluster.
        """
        if self.lake.namespace != "cluster_id":
            return self.lake.database
        if cluster_database is None:
            raise ValueError("namespace: cluster_id needs the cluster's database")
        known = self.lake.cluster_ids
        if known and cluster_database not in map(database_for_cluster, known):
            raise Fatal(
                f"the Kafka cluster {cluster_database} is none of lake.cluster_ids: {', '.join(known)}",
                fix="add its id there in calve.yaml, and deploy: the job may write into the databases of these clusters only",
            )
        return cluster_database

    def table_name(self, table: Table, cluster_database: str | None = None) -> TableName:
        """The table's full name; `cluster_database`: as `database`."""
        return TableName(self.database(cluster_database), table.name)
