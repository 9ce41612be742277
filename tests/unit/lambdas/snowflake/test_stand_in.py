"""The stand-in is strict: a wrong order, a missing right, an unknown option or a looser way of writing is refused."""

import json

import pytest

from lambdas.snowflake.sql_api import Refused
from tests.unit.lambdas.snowflake.world import World

TABLE = (
    """CREATE ICEBERG TABLE IF NOT EXISTS "TRADING"."TRADING"."TRADES" EXTERNAL_VOLUME = 'CALVE_TRADING_VOLUME' """
    """CATALOG = 'CALVE_TRADING_CATALOG' CATALOG_TABLE_NAME = 'trades' AUTO_REFRESH = TRUE"""
)
REFRESH = """ALTER ICEBERG TABLE "TRADING"."TRADING"."TRADES" REFRESH"""


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("""CREATE OR REPLACE WAREHOUSE "W" """, "syntax error"),
        ("""CREATE WAREHOUSE "W" """, "syntax error"),
        ("""CREATE WAREHOUSE IF NOT EXISTS W""", "syntax error"),
        ("""CREATE WAREHOUSE IF NOT EXISTS "W" AUTO_SUSPND = 60""", "invalid property 'AUTO_SUSPND'"),
        ("""CREATE WAREHOUSE IF NOT EXISTS "W" AUTO_SUSPEND = '60'""", "invalid value"),
        ("""CREATE WAREHOUSE IF NOT EXISTS "W" AUTO_SUSPEND = 60 AUTO_SUSPEND = 60""", "syntax error"),
        ("""CREATE EXTERNAL VOLUME IF NOT EXISTS "V" ALLOW_WRITES = FALSE""", "STORAGE_LOCATIONS"),
        (
            """CREATE EXTERNAL VOLUME IF NOT EXISTS "V" STORAGE_LOCATIONS = ((NAME = 'l' STORAGE_PROVIDER = 'S3'))""",
            "invalid value",
        ),
        (
            """CREATE CATALOG INTEGRATION IF NOT EXISTS "C" CATALOG_SOURCE = GLUE TABLE_FORMAT = ICEBERG ENABLED = TRUE""",
            "GLUE_AWS_ROLE_ARN",
        ),
        ("""CREATE SCHEMA IF NOT EXISTS "NOWHERE"."S" """, "Database 'NOWHERE' does not exist"),
        ("""CREATE USER IF NOT EXISTS "U" RSA_PUBLIC_KEY = 'short'""", "invalid value"),
        ("""GRANT USAGE ON DATABASE "NOWHERE" TO ROLE "SYSADMIN" """, "Database 'NOWHERE' does not exist"),
        ("""GRANT SELECT ON WAREHOUSE "W" TO ROLE "SYSADMIN" """, "no SELECT on WAREHOUSE"),
        ("""GRANT ROLE "NOBODY" TO ROLE "SYSADMIN" """, "Role 'NOBODY' does not exist"),
        ("""DROP WAREHOUSE "W" """, "syntax error"),
        ("""ALTER USER "DEPLOYER" SET PASSWORD = 'x'""", "invalid property 'PASSWORD'"),
        ("""SELECT SYSTEM$VERIFY_EXTERNAL_VOLUME('NOWHERE')""", "External volume 'NOWHERE' does not exist"),
        ("""SELECT 1 FROM "T" """, "syntax error"),
        ("""SHOW WAREHOUSES LIKE 'W'; DROP DATABASE IF EXISTS "TRADING" """, "syntax error"),
    ],
)
def test_what_snowflake_would_refuse_is_refused(snow: World, sql: str, words: str) -> None:
    before = snow.state()
    with pytest.raises(Refused, match=words):
        snow.admin.execute(sql)
    assert snow.state() == before


def test_only_who_has_the_rights_makes_and_refreshes_a_table(snow: World) -> None:
    snow.commit()
    snow.deploy()
    rights = snow.account.rights
    for privilege, kind, name in [
        ("USAGE", "EXTERNAL VOLUME", ("CALVE_TRADING_VOLUME",)),
        ("USAGE", "CATALOG INTEGRATION", ("CALVE_TRADING_CATALOG",)),
        ("USAGE", "DATABASE", ("TRADING",)),
        ("CREATE ICEBERG TABLE", "SCHEMA", ("TRADING", "TRADING")),
    ]:
        right = (privilege, kind, name, "CALVE_TRADING_PUBLISHER")
        rights.granted.remove(right)
        with pytest.raises(Refused, match=r"not authorized|Insufficient privileges"):
            snow.service.execute(TABLE)
        rights.granted.add(right)
    snow.service.execute(TABLE)
    key = ("ICEBERG TABLE", ("TRADING", "TRADING", "TRADES"))
    rights.objects[key].owner = "SOMEBODY"
    with pytest.raises(Refused, match=r"not authorized|Insufficient privileges"):
        snow.service.execute(REFRESH)
    with pytest.raises(Refused, match="Insufficient privileges to operate on account"):
        snow.service.execute("""CREATE WAREHOUSE IF NOT EXISTS "MINE" """)


def test_a_table_that_refreshes_by_itself_is_not_refreshed_by_hand(snow: World) -> None:
    snow.commit()
    snow.deploy()
    snow.service.execute(TABLE)
    with pytest.raises(Refused, match="not allowed while AUTO_REFRESH"):
        snow.service.execute(REFRESH)


def test_a_table_that_the_catalog_does_not_have_is_not_made(snow: World) -> None:
    snow.deploy()
    with pytest.raises(Refused, match="trades' does not exist"):
        snow.service.execute(TABLE)


def test_what_tables_read_through_is_not_dropped_before_them(snow: World) -> None:
    snow.commit()
    snow.deploy()
    snow.service.execute(TABLE)
    for sql in ("EXTERNAL VOLUME", "CATALOG INTEGRATION"):
        name = "CALVE_TRADING_VOLUME" if sql == "EXTERNAL VOLUME" else "CALVE_TRADING_CATALOG"
        with pytest.raises(Refused, match="cannot be dropped"):
            snow.admin.execute(f'DROP {sql} IF EXISTS "{name}"')


@pytest.mark.parametrize(
    "action", ["s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket", "s3:GetBucketLocation"]
)
def test_a_volume_whose_role_may_too_little_does_not_verify(snow: World, action: str) -> None:
    snow.deploy()
    iam = snow.client("iam")
    document = iam.get_role_policy(RoleName="volume", PolicyName="Work")["PolicyDocument"]
    for statement in document["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each != action]
    iam.delete_role_policy(RoleName="volume", PolicyName="Work")
    kept = [statement for statement in document["Statement"] if statement["Action"]]
    changed = json.dumps(document | {"Statement": kept})
    iam.put_role_policy(RoleName="volume", PolicyName="Work", PolicyDocument=changed)
    said = snow.admin.value("""SELECT SYSTEM$VERIFY_EXTERNAL_VOLUME('CALVE_TRADING_VOLUME')""")
    assert f"not authorized to perform: {action}" in said
