"""The client of the SQL API against the stand-in, by HTTP."""

import re

import pytest

from calve.errors import ConfigError, Fatal, Retryable
from lambdas.snowflake import sql
from lambdas.snowflake.sql_api import TOKEN_S, KeyPair, Refused, Session, account_name
from tests.standins.snowflake.server import Faults
from tests.unit.lambdas.snowflake.world import ADMIN, SERVICE, World

WAREHOUSE = """CREATE WAREHOUSE IF NOT EXISTS "W" AUTO_SUSPEND = 60"""


def session(snow: World, key: KeyPair = ADMIN, user: str = "DEPLOYER", role: str = "ACCOUNTADMIN") -> Session:
    return Session(snow.url, "myorg-myaccount", user, key, role)


def test_rows_come_by_their_columns_names(snow: World) -> None:
    admin = session(snow)
    admin.execute(WAREHOUSE)
    (row,) = admin.execute("""SHOW WAREHOUSES LIKE 'W'""")
    assert row["name"] == "W"
    assert admin.value("SELECT CURRENT_USER()") == "DEPLOYER"


def test_a_refusal_has_snowflakes_own_words_and_numbers(snow: World) -> None:
    with pytest.raises(Refused, match="Role 'NOBODY' does not exist or not authorized") as caught:
        session(snow).execute("""GRANT ROLE "NOBODY" TO ROLE "SYSADMIN" """)
    assert caught.value.absent
    with pytest.raises(Refused, match="syntax error") as caught:
        session(snow).execute("CREATE OR REPLACE WAREHOUSE W")
    assert not caught.value.absent


def test_a_statement_whose_answer_was_lost_is_done_once(snow: World) -> None:
    snow.api.faults = Faults(lost=1)
    session(snow).execute(WAREHOUSE)
    assert snow.statements() == [WAREHOUSE]


def test_overload_and_an_expired_token_are_overcome(snow: World) -> None:
    snow.api.faults = Faults(overloaded=2, expired=1)
    session(snow).execute(WAREHOUSE)
    assert snow.statements() == [WAREHOUSE]
    snow.api.faults = Faults(overloaded=100)
    with pytest.raises(Retryable, match=r"Snowflake answered HTTP 429, 6 times in a row"):
        session(snow).execute(WAREHOUSE)


def test_an_account_that_is_not_there_is_retryable() -> None:
    with pytest.raises(Retryable, match="does not answer"):
        Session("http://127.0.0.1:1", "a", "U", ADMIN, "R").execute("SELECT CURRENT_USER()")


@pytest.mark.parametrize(
    ("key", "user", "reason"),
    [(SERVICE, "DEPLOYER", "fingerprint"), (ADMIN, "SOMEBODY", "fingerprint")],
)
def test_who_has_not_this_key_is_not_let_in(snow: World, key: KeyPair, user: str, reason: str) -> None:
    with pytest.raises(Fatal, match=f"does not let {user} in"):
        session(snow, key, user).execute("SELECT CURRENT_USER()")
    assert snow.api.refused == [reason, reason]


def test_a_token_of_another_account_or_of_too_long_a_life_is_refused(
    snow: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Session(snow.url, "other-account", "DEPLOYER", ADMIN, "ACCOUNTADMIN")
    with pytest.raises(Fatal):
        other.execute("SELECT CURRENT_USER()")
    monkeypatch.setattr("lambdas.snowflake.sql_api.TOKEN_S", 3601)
    with pytest.raises(Fatal):
        session(snow).execute("SELECT CURRENT_USER()")
    assert snow.api.refused == ["subject", "subject", "expired", "expired"]


def test_a_token_with_another_signature_is_refused(snow: World, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = KeyPair(SERVICE.private)
    monkeypatch.setattr(KeyPair, "fingerprint", ADMIN.fingerprint)
    with pytest.raises(Fatal):
        session(snow, forged).execute("SELECT CURRENT_USER()")
    assert snow.api.refused == ["signature", "signature"]


def test_a_role_that_the_user_does_not_have_is_refused(snow: World) -> None:
    snow.deploy()
    with pytest.raises(Refused, match="not granted"):
        session(snow, SERVICE, "CALVE_TRADING").execute("SELECT CURRENT_USER()")


def test_keys_and_sessions_show_nothing_of_themselves() -> None:
    pair = Session("u", "a", "U", ADMIN, "R")
    assert "PRIVATE" not in repr(pair)
    assert KeyPair.of_pem(ADMIN.to_pem()).fingerprint == ADMIN.fingerprint
    with pytest.raises(ConfigError, match="no unencrypted RSA key") as caught:
        KeyPair.of_pem("secret text")
    assert "secret text" not in str(caught.value)
    assert TOKEN_S < 3600


def test_an_account_locator_is_named_without_its_region() -> None:
    assert account_name("xy12345.eu-west-1.aws") == "XY12345"
    assert account_name("myorg-myaccount") == "MYORG-MYACCOUNT"


def test_values_cannot_leave_their_place() -> None:
    assert sql.text("it's \\ here") == r"'it''s \\ here'"
    with pytest.raises(ConfigError):
        sql.name('a"; DROP DATABASE b')
    assert sql.options({"A": True, "B": [{"C": "x", "D": sql.Word("E")}], "F": 1}) == (
        "A = TRUE B = ((C = 'x' D = E)) F = 1"
    )
    assert re.fullmatch(r"SELECT F\('a''b'\) AS ANSWER", sql.call("F", "a'b"))
