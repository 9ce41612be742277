"""A deployment's objects: made once, followed, removed; whatever dies in between."""

import copy
import itertools
from collections.abc import Callable

import pytest

from calve.config.publishing import OpenCatalog, Warehouse
from calve.errors import CalveError, ConfigError, Fatal
from lambdas.snowflake.objects import Wanted, make, remove, verify
from tests.standins.snowflake.server import Faults
from tests.unit.lambdas.snowflake.world import LAKE, SERVICE, World

MADE = {
    ("WAREHOUSE", ("CALVE_TRADING",)),
    ("ROLE", ("CALVE_TRADING_READER",)),
    ("ROLE", ("CALVE_TRADING_PUBLISHER",)),
    ("USER", ("CALVE_TRADING",)),
    ("EXTERNAL VOLUME", ("CALVE_TRADING_VOLUME",)),
    ("CATALOG INTEGRATION", ("CALVE_TRADING_CATALOG",)),
    ("DATABASE", ("TRADING",)),
    ("SCHEMA", ("TRADING", "TRADING")),
    ("SCHEMA", ("TRADING", "PUBLIC")),
}


def objects(snow: World) -> set[tuple[str, tuple[str, ...]]]:
    there = {("USER", ("DEPLOYER",)), ("ROLE", ("ACCOUNTADMIN",)), ("ROLE", ("SYSADMIN",))}
    return set(snow.account.rights.objects) - there


def test_everything_is_made_and_both_sides_trust_each_other(snow: World) -> None:
    snow.deploy()
    assert objects(snow) == MADE
    verify(snow.admin, snow.config, wait_s=0)
    assert snow.service.value("SELECT CURRENT_USER()") == "CALVE_TRADING"


def test_a_second_deploy_changes_nothing(snow: World) -> None:
    snow.deploy()
    before = snow.state()
    snow.deploy(old=snow.wanted)
    assert snow.state() == before
    assert not [sql for sql in snow.statements() if sql.startswith("DROP")]


@pytest.mark.parametrize("linked", [False, True])
def test_a_delete_leaves_nothing_of_ours_and_everything_of_others(snow: World, *, linked: bool) -> None:
    wanted = snow.having(tables="linked_database" if linked else "iceberg")
    snow.admin.execute("""CREATE WAREHOUSE IF NOT EXISTS "CALVE_TRADING" AUTO_SUSPEND = 600 COMMENT = 'BI'""")
    snow.admin.execute("""CREATE ROLE IF NOT EXISTS "CALVE_TRADING_READER" """)
    before = objects(snow)
    options = dict(snow.account.rights.objects["WAREHOUSE", ("CALVE_TRADING",)].options)
    snow.commit()
    snow.deploy(wanted=wanted)
    if not linked:
        snow.service.execute(create_table())
    assert remove(snow.admin, wanted) == []
    assert objects(snow) == before
    assert snow.account.rights.objects["WAREHOUSE", ("CALVE_TRADING",)].options == options


def test_a_database_in_which_somebody_has_something_is_kept(snow: World) -> None:
    snow.commit()
    snow.deploy()
    snow.admin.execute("""CREATE SCHEMA IF NOT EXISTS "TRADING"."THEIRS" """)
    lake = Wanted("other", snow.having(integration="OTHER", volume="OTHER_VOLUME").config, LAKE)
    for each in lake.objects:
        if each.kind in ("EXTERNAL VOLUME", "CATALOG INTEGRATION"):
            snow.admin.execute(each.create)
    snow.admin.execute(
        create_table("THEIRS")
        .replace("CALVE_TRADING_CATALOG", "OTHER")
        .replace("CALVE_TRADING_VOLUME", "OTHER_VOLUME")
    )
    assert remove(snow.admin, snow.wanted) == ['DATABASE "TRADING"']
    assert ("ICEBERG TABLE", ("TRADING", "THEIRS", "TRADES")) in objects(snow)
    assert ("SCHEMA", ("TRADING", "TRADING")) not in objects(snow)


@pytest.mark.parametrize(
    "taken",
    [
        """CREATE USER IF NOT EXISTS "CALVE_TRADING" TYPE = SERVICE COMMENT = 'of somebody'""",
        """CREATE ROLE IF NOT EXISTS "CALVE_TRADING_PUBLISHER" COMMENT = 'of somebody'""",
    ],
)
def test_what_is_somebody_elses_and_would_be_changed_is_refused(snow: World, taken: str) -> None:
    snow.admin.execute(taken)
    before = objects(snow)
    with pytest.raises(ConfigError, match='with the comment "of somebody"'):
        snow.deploy()
    assert objects(snow) == before


def test_changed_settings_are_set_and_the_rest_stays(snow: World) -> None:
    snow.deploy()
    kept = snow.account.rights.objects["EXTERNAL VOLUME", ("CALVE_TRADING_VOLUME",)]
    changed = snow.having(warehouse=Warehouse("CALVE_TRADING", "SMALL", 120), refresh_s=300)
    snow.deploy(old=snow.wanted, wanted=changed)
    found = snow.account.rights.objects
    assert found["WAREHOUSE", ("CALVE_TRADING",)].options["WAREHOUSE_SIZE"] == "SMALL"
    assert found["WAREHOUSE", ("CALVE_TRADING",)].options["AUTO_SUSPEND"] == 120
    assert found["CATALOG INTEGRATION", ("CALVE_TRADING_CATALOG",)].options["REFRESH_INTERVAL_SECONDS"] == 300
    assert found["EXTERNAL VOLUME", ("CALVE_TRADING_VOLUME",)] is kept


def test_other_names_and_another_kind_of_database_replace_what_was_made(snow: World) -> None:
    snow.commit()
    snow.deploy()
    snow.service.execute(create_table())
    changed = snow.having(tables="linked_database", reader="ANALYSTS", warehouse=None)
    snow.deploy(old=snow.wanted, wanted=changed)
    found = objects(snow)
    assert ("ROLE", ("ANALYSTS",)) in found
    assert ("WAREHOUSE", ("CALVE_TRADING",)) not in found
    assert ("ICEBERG TABLE", ("TRADING", "trading", "trades")) in found or snow.service.value(
        """SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION('"TRADING"."trading"."trades"')"""
    )
    assert ("SCHEMA", ("TRADING", "TRADING")) not in found


def test_a_new_place_of_the_lake_makes_the_volume_anew(snow: World) -> None:
    snow.commit()
    snow.deploy()
    snow.service.execute(create_table())
    old, snow.lake = snow.wanted, Wanted("trading", snow.config, LAKE).lake
    moved = Wanted("trading", snow.config, type(LAKE)(**{**_fields(LAKE), "external_id": "calve-other"}))
    snow.deploy(old=old, wanted=moved)
    (location,) = snow.account.rights.objects["EXTERNAL VOLUME", ("CALVE_TRADING_VOLUME",)].options[
        "STORAGE_LOCATIONS"
    ]
    assert location["STORAGE_AWS_EXTERNAL_ID"] == "calve-other"
    assert not [key for key in objects(snow) if key[0] == "ICEBERG TABLE"]


def test_the_words_of_snowflake_end_the_deployment(snow: World) -> None:
    with pytest.raises(Fatal, match=r"CALVE_TRADING_VOLUME: .*is not authorized to perform: sts:AssumeRole"):
        make(snow.admin, snow.wanted, None, SERVICE, lambda: verify(snow.admin, snow.config, wait_s=0))
    assert ("DATABASE", ("TRADING",)) not in objects(snow)


def test_trust_that_comes_late_is_waited_for(snow: World) -> None:
    def late(_: float) -> None:
        snow.trust(snow.wanted)

    make(snow.admin, snow.wanted, None, SERVICE, lambda: verify(snow.admin, snow.config, sleep=late))


def test_with_a_named_iam_user_no_role_is_changed(snow: World) -> None:
    static = snow.having(iam_user_arn="arn:aws:iam::123456789001:user/abc1-b-self1234")
    snow.deploy(wanted=static)
    trust = snow.client("iam").get_role(RoleName="volume")["Role"]["AssumeRolePolicyDocument"]
    assert trust["Statement"] == []


def test_the_classic_integration_and_open_catalog_are_made_too(snow: World) -> None:
    snow.deploy(wanted=snow.having(catalog="glue"))
    verify(snow.admin, snow.having(catalog="glue").config, wait_s=0)
    remove(snow.admin, snow.wanted)
    polaris = OpenCatalog("https://open.example.com/polaris/api/catalog", "cat", "aws:polaris")
    wanted = snow.having(catalog="open_catalog", open_catalog=polaris)
    lake = type(LAKE)(**{**_fields(LAKE), "catalog_role": "", "client_id": "id", "client_secret": "secret"})
    make(snow.admin, Wanted("trading", wanted.config, lake), None, SERVICE, lambda: None)
    assert ("CATALOG INTEGRATION", ("CALVE_TRADING_CATALOG",)) in objects(snow)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("act", ["make", "update", "remove"])
def test_a_death_at_any_statement_and_once_more_is_the_same_as_once(
    snow: World, act: str, *, before: bool
) -> None:
    other = snow.having(reader="ANALYSTS", refresh_s=300, warehouse=None)

    if act != "make":
        snow.deploy()
    began = copy.deepcopy(snow.account.rights)

    def start() -> None:
        again = copy.deepcopy(began)
        for slot in ("objects", "granted", "future", "inherits", "of_user"):
            setattr(snow.account.rights, slot, getattr(again, slot))

    acts: dict[str, Callable[[], object]] = {
        "make": snow.deploy,
        "update": lambda: snow.deploy(old=snow.wanted, wanted=other),
        "remove": lambda: remove(snow.admin, snow.wanted),
    }
    start()
    acts[act]()
    expected = snow.state()
    for number in itertools.count(1):
        start()
        snow.api.faults = Faults(dies_at=number, before=before)
        try:
            acts[act]()
        except CalveError:
            snow.api.faults = Faults()
            acts[act]()
            assert snow.state() == expected, number
        else:
            break
    assert number > 8


def create_table(schema: str = "TRADING") -> str:
    return (
        f'CREATE ICEBERG TABLE IF NOT EXISTS "TRADING"."{schema}"."TRADES" '
        "EXTERNAL_VOLUME = 'CALVE_TRADING_VOLUME' CATALOG = 'CALVE_TRADING_CATALOG' "
        "CATALOG_TABLE_NAME = 'trades' CATALOG_NAMESPACE = 'trading' AUTO_REFRESH = TRUE"
    )


def _fields(lake: object) -> dict[str, str]:
    return {name: getattr(lake, name) for name in type(lake).__dataclass_fields__}  # type: ignore[attr-defined]
