"""The lake and the other AWS services that a job needs, checked by harmless reads. `client`: makes boto3's clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from calve.config.job import Catalog, S3Tables
from calve.http_client import Tokens, ask, bearer
from calve.secrets import read_secret, value_of
from lambdas.aws import PAGE, REFUSAL, code_of, governs, grants_on, principal_of
from lambdas.doctor.finding import Finding

Client = Callable[[str], Any]
DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")
ABSENT = ("EntityNotFoundException", "ResourceNotFoundException", "NoSuchBucket", "NoSuchKey", "404")
SKEW_WARN_S, SKEW_FAIL_S = 30.0, 300.0
"""AWS refuses signatures more than five minutes off; tokens for Snowflake and links last a minute or more."""
DEPLOY = "deploy: npx cdk deploy --all"
GRANT = f"as a data lake administrator, let calve grant, or grant by hand: {PAGE}"


def bucket(client: Client, warehouse: str, region: str, *, for_operator: bool = False) -> Finding:
    """Whether the bucket exists, is in this region, and can be listed. An operator need not be allowed to list it."""
    place = urlsplit(warehouse)
    try:
        answer = listed(client, warehouse)
    except ClientError as error:
        if for_operator and code_of(error) in DENIED:
            fix = "look with the rights of the deployment: calve doctor --remote"
            return Finding("bucket", "absent", f"you may not list {place.netloc}: {code_of(error)}", fix)
        return refused("bucket", error, f"bucket {place.netloc}", "s3:ListBucket on it")
    found = answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", region)
    if found != region:
        fix = f"set `lake.region: {found}` in calve.yaml, or name a bucket in {region}"
        return Finding("bucket", "fail", f"{place.netloc} is in {found}, the deployment in {region}", fix)
    return Finding("bucket", "ok", f"{place.netloc} may be listed")


def listed(client: Client, warehouse: str) -> Any:
    """S3's answer to a list of the lake."""
    place = urlsplit(warehouse)
    prefix = f"{place.path.strip('/')}/".lstrip("/")
    return client("s3").list_objects_v2(Bucket=place.netloc, Prefix=prefix, MaxKeys=1)


def clock(ask: Callable[[], Any]) -> Finding:
    """The difference between this machine's clock and AWS's, from any answer of AWS, even a refusal."""
    try:
        answer = ask()
    except ClientError as error:
        answer = error.response
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    if "date" not in headers:
        return Finding("clock", "absent", "the answer has no date")
    return skewed((datetime.now(UTC) - parsedate_to_datetime(headers["date"])).total_seconds())


def skewed(skew_s: float) -> Finding:
    detail = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} AWS's"
    if abs(skew_s) <= SKEW_WARN_S:
        return Finding("clock", "ok", detail)
    fix = "set it by NTP: requests and tokens are signed with the time"
    return Finding("clock", "fail" if abs(skew_s) > SKEW_FAIL_S else "warn", detail, fix)


def tables(client: Client, database: str, names: Iterable[str]) -> Iterator[Finding]:
    """Whether the database exists, and the metadata file of each existing table can be read."""
    glue = client("glue")
    try:
        glue.get_database(Name=database)
    except ClientError as error:
        yield refused("database", error, f"database {database}", "glue:GetDatabase on it")
        return
    yield Finding("database", "ok", database)
    readable = 0
    unmade: list[str] = []
    for name in names:
        try:
            found = glue.get_table(DatabaseName=database, Name=name)["Table"]
            place = urlsplit(found["Parameters"]["metadata_location"])
            client("s3").get_object(Bucket=place.netloc, Key=place.path.lstrip("/"), Range="bytes=0-0")
            readable += 1
        except ClientError as error:
            if error.operation_name == "GetTable" and code_of(error) in ABSENT:
                unmade.append(name)
                continue
            needed = "glue:GetTable, s3:GetObject and kms:Decrypt for it"
            yield refused(f"table {name}", error, f"table {name}", needed)
    if readable:
        yield Finding("tables", "ok", f"{readable} may be read")
    if unmade:
        yield Finding("tables not made", "absent", ", ".join(unmade), "their job makes them")


def catalog(client: Client, settings: Catalog) -> Iterator[Finding]:
    """Whether the catalog that holds the tables answers. Raises CalveError: a REST catalog refuses the client, or does not."""
    if isinstance(settings, S3Tables):
        try:
            client("s3tables").get_table_bucket(tableBucketARN=settings.bucket_arn)
        except ClientError as error:
            yield refused(
                "catalog", error, f"table bucket {settings.bucket_arn}", "s3tables:GetTableBucket on it"
            )
            return
        yield Finding("catalog", "ok", settings.bucket_arn)
        return
    headers = {}
    if settings.secret:
        secret = read_secret(settings.secret)
        tokens = Tokens(
            settings.properties["oauth2-server-uri"],
            value_of(secret, "client_id", settings.secret),
            value_of(secret, "client_secret", settings.secret),
            scope=settings.properties["scope"],
            settings="lake.catalog: secret, token_url and scope",
        )
        headers = bearer(tokens.current())
    query = f"?{urlencode({'warehouse': settings.warehouse})}" if settings.warehouse else ""
    answer = ask(f"{settings.uri}/v1/config{query}", server=f"the catalog {settings.uri}", headers=headers)
    if answer.status == 200:
        yield Finding("catalog", "ok", settings.uri)
    else:
        fix = "check `uri`, `warehouse` and `secret` of `lake.catalog` in calve.yaml"
        yield Finding("catalog", "fail", f"{settings.uri} answers with HTTP {answer.status}", fix)


def formation(client: Client, deployment: str, database: str) -> Finding:
    """Whether Lake Formation governs the database, and then whether the deployment's roles have grants."""
    check, asked = "lake formation", client("lakeformation")
    try:
        if not governs(asked, client("glue"), database):
            return Finding(check, "ok", f"leaves {database} to IAM")
        holders = {principal_of(each) for each in grants_on(asked, database)}
    except (ClientError, BotoCoreError) as error:  # a network without a way to it is no fault
        why = code_of(error) if isinstance(error, ClientError) else type(error).__name__
        return Finding(check, "absent", f"it does not say whether it governs {database}: {why}")
    if jobs := sum(f":role/{deployment}-ingest-" in each for each in holders):
        return Finding(check, "ok", f"governs {database}; roles of {deployment}-ingest with grants: {jobs}")
    none = f"governs {database}, and shows no grant to a role of {deployment}-ingest"
    return Finding(check, "warn", none, GRANT)


def secrets(client: Client, uses: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Whether each secret in AWS exists and can be read. Its value is not used."""
    read = 0
    for use, reference in uses:
        kind, _, name = reference.partition(":")
        if kind != "aws":
            continue
        try:
            client("secretsmanager").get_secret_value(SecretId=name)
            read += 1
        except ClientError as error:
            needed = "secretsmanager:GetSecretValue on it (and kms:Decrypt on its key)"
            yield refused(f"secret for {use}", error, f"secret {name}", needed)
    if read:
        yield Finding("secrets", "ok", f"{read} may be read")


def refused(check: str, error: ClientError, what: str, needed: str) -> Finding:
    code = code_of(error)
    if code in ABSENT:
        fix = f"make it, or correct its name in calve.yaml; what the stacks make: {DEPLOY}"
        return Finding(check, "fail", f"there is no {what} in this account and region", fix)
    if REFUSAL in str(error):
        return Finding(check, "fail", f"Lake Formation refuses {what} to this role", GRANT)
    if code in DENIED:
        return Finding(check, "fail", f"{what} may not be read: {code}", f"allow {needed}")
    return Finding(check, "fail", f"{what} cannot be read: {code}")
