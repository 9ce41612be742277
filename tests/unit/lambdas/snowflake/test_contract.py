"""What calve takes Snowflake to do. Run against the stand-in by `make check`, against an account by `make test-snowflake`."""

from collections.abc import Iterator

import pytest

from lambdas.followers import head
from lambdas.snowflake.objects import establish, make, remove, verify
from lambdas.snowflake.refresh import SnowflakeTables
from lambdas.snowflake.sql import name
from lambdas.snowflake.sql_api import KeyPair, Refused, properties, register
from tests.unit.lambdas.snowflake.place import Place, place


@pytest.fixture(scope="module")
def made() -> Iterator[Place]:
    """Everything, made twice; removed at the end, after which nothing is left."""
    with pytest.MonkeyPatch.context() as patch, place() as here:
        patch.setenv("POWERTOOLS_TRACE_DISABLED", "true")
        for _ in range(2):
            make(here.admin, here.wanted, None, here.key, lambda: _trust(here))
        try:
            yield here
        finally:
            assert remove(here.admin, here.wanted) == []
        for each in here.wanted.objects:
            if each.kind != "SCHEMA":
                found = here.admin.execute(each.show)
                assert each.parts[-1] not in [row["name"] for row in found], each.name


def _trust(here: Place) -> None:
    establish(here.admin, here.wanted.config, here.wanted.lake, here.client("iam"))
    verify(here.admin, here.wanted.config)


@pytest.fixture
def tables(made: Place) -> SnowflakeTables:
    return SnowflakeTables(made.service(made.key), made.wanted.config)


def test_every_object_says_who_made_it(made: Place) -> None:
    for each in made.wanted.objects:
        (row,) = [row for row in made.admin.execute(each.show) if row["name"] == each.parts[-1]]
        assert row["comment"] == f"calve:{made.wanted.deployment}", each.name


def test_a_table_is_found_at_what_glue_names_and_refreshes_by_itself(
    made: Place, tables: SnowflakeTables
) -> None:
    tables.create(made.table)
    seen = tables.find(made.table)
    there = head(made.client("glue"), made.client("s3"), made.table)
    assert seen
    assert there
    assert (seen.metadata_location, seen.stuck) == (there.metadata_location, None)
    tables.refresh(made.table)
    again = tables.find(made.table)
    assert again
    assert again.stuck is None


def test_a_table_that_is_not_there_is_told_from_other_refusals(made: Place, tables: SnowflakeTables) -> None:
    assert tables.find(type(made.table)(made.table.database, "no_such_table")) is None
    with pytest.raises(Refused) as caught:
        made.admin.execute("THIS IS NO STATEMENT")
    assert not caught.value.absent


def test_a_table_that_refreshes_by_itself_is_not_refreshed_by_hand(
    made: Place, tables: SnowflakeTables
) -> None:
    tables.create(made.table)
    config = made.wanted.config
    table = name(config.database, config.schema, made.table.table.upper())
    with pytest.raises(Refused):
        tables.session.execute(f"ALTER ICEBERG TABLE {table} REFRESH")


def test_a_user_has_two_places_for_its_keys_and_fills_them_itself(made: Place) -> None:
    config, new = made.wanted.config, KeyPair.generate()
    assert register(made.service(made.key), config.service_user, new, kept=made.key)
    for key in (made.key, new):
        assert made.service(key).value("SELECT CURRENT_USER()") == config.service_user
    said = properties(made.admin, "USER", config.service_user)
    assert {said["RSA_PUBLIC_KEY_FP"], said["RSA_PUBLIC_KEY_2_FP"]} == {made.key.fingerprint, new.fingerprint}


def test_the_service_user_may_not_make_what_the_administrator_makes(made: Place) -> None:
    with pytest.raises(Refused):
        made.service(made.key).execute('CREATE DATABASE IF NOT EXISTS "CALVE_CONTRACT_FORBIDDEN"')
