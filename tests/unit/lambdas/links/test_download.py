import base64
import hashlib
import random
import string
import time
import urllib.parse

import pytest

from lambdas.tokens import Keys, new_link_id, sign
from tests.alarms import embedded, goes_off
from tests.unit.lambdas.links.conftest import BUCKET, FILE, FOLDER, RUN, manifest
from tests.unit.lambdas.links.test_notify import links_in

TRICKS = [
    "/",
    "//",
    "/.",
    "/..",
    "/../{}",
    "//{}",
    "/{}/",
    "/{}//1",
    "/{}/0",
    "/{}/01",
    "/{}/2",
    "/{}/-1",
    "/{}/1/1",
    "/{}/..",
    "/{}/%31",
    "/%2e%2e/{}",
    "/{}%00",
    "/{}\x00",
    "/{}\n",
    "/x/../{}",
    "\\{}",
    "{}",
    "/{}/\u0661",
    "/{}\u200b",
    "/\uff0e\uff0e/{}",
    "/exports/weekly_trades/manifest.json",
    "/favicon.ico",
    "/{}" + "A" * 100_000,
    "/" + "/" * 50_000,
    "",
]


@pytest.fixture
def path(world):
    """A valid link's path."""
    world.notify(world.write(manifest()))
    [found] = links_in(world.published()[0]["Message"])
    world.calls.clear()
    return found


@pytest.fixture
def refusal(world):
    """What every refusal looks like."""
    return world.request("/x")


def link_id(world) -> str:
    return str(world.rows()[0]["id"]["S"])


def test_the_page_says_what_there_is(world, path):
    answer = world.request(path)
    assert answer["statusCode"] == 200
    html = answer["body"]
    for said in (
        "Weekly trades",
        FILE,
        "12,345",
        "1.2 MB",
        "ab" * 32,
        "Complete.",
        "Europe/Vilnius",
        "Link expires",
    ):
        assert said in html
    assert "<script" not in html
    assert path.strip("/") not in html


def test_what_another_run_has_left_is_not_offered(world):
    for part in manifest(count=3)["parts"]:
        left = part["key"].replace(RUN, f"{FOLDER}/4e5f6071")
        world.client("s3").put_object(Bucket=BUCKET, Key=left, Body=b"symbol\r\n")
    world.notify(world.write(manifest()))
    [path] = links_in(world.published()[0]["Message"])
    page = world.request(path)["body"]
    assert (page.count("<form"), page.count("_part")) == (1, 0)
    assert world.request(f"{path}/2") == world.request("/x")


def test_the_pages_policy_allows_its_style_and_its_button_and_nothing_else(world, path):
    answer = world.request(path)
    policy = answer["headers"]["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    style = answer["body"].split("<style>")[1].split("</style>")[0]
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy
    assert f"form-action 'self' https://{BUCKET}.s3.eu-north-1.amazonaws.com;" in policy
    assert "style=" not in answer["body"]
    assert "unsafe" not in policy


def test_the_button_leads_to_the_file_for_a_minute(world, path):
    answer = world.request(path, "POST")
    assert answer["statusCode"] == 302
    assert answer["headers"]["Cache-Control"] == "no-store"
    assert answer["headers"]["Referrer-Policy"] == "no-referrer"
    location = urllib.parse.urlsplit(answer["headers"]["Location"])
    asked = dict(urllib.parse.parse_qsl(location.query))
    assert location.netloc == f"{BUCKET}.s3.eu-north-1.amazonaws.com"
    assert location.path == f"/{RUN}/{FILE}"
    assert asked["X-Amz-Expires"] == "60"
    assert asked["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
    assert asked["response-content-disposition"] == f'attachment; filename="{FILE}"'
    assert answer["body"] == ""


def test_looking_uses_nothing_up_and_downloading_does(world, path):
    for method in ("GET", "HEAD") * 20:
        assert world.request(path, method)["statusCode"] == 200
    assert world.rows()[0]["downloads"]["N"] == "0"
    world.request(path, "POST")
    assert world.rows()[0]["downloads"]["N"] == "1"


def test_head_is_get_without_a_body(world, path, refusal):
    get, head = (world.request(path, method) for method in ("GET", "HEAD"))
    assert head == get | {"body": ""}
    assert world.request("/x", "HEAD") == refusal | {"body": ""}


def test_a_link_of_several_parts_has_a_button_for_each(world):
    world.notify(world.write(manifest(count=3)))
    base = links_in(world.published()[0]["Message"])[0].rpartition("/")[0]
    whole = world.request(base)
    assert whole["body"].count("<form") == 3
    assert f'action="{base.strip("/")}/2"' in whole["body"]
    one = world.request(f"{base}/2")
    assert one["body"].count("<form") == 1
    assert "part 2 of 3" in one["body"]
    assert world.request(base, "POST")["statusCode"] == 404
    assert "_part02.csv" in world.request(f"{base}/2", "POST")["headers"]["Location"]
    assert world.request(f"{base}/4")["statusCode"] == 404


def test_an_incomplete_correction_says_both(world):
    world.notify(world.write(manifest(complete=False, correction=True)))
    [path] = links_in(world.published()[0]["Message"])
    html = world.request(path)["body"]
    assert "<strong>Incomplete</strong>, ingested up to Monday, 9 November 2026" in html
    assert "Correction." in html
    assert "Complete." not in html


def test_what_a_row_says_cannot_become_markup(world, path):
    world.change(link_id(world), title={"S": "<script>alert(1)</script>"}, window={"S": '"><img src=x>'})
    html = world.request(path)["body"]
    assert "<script" not in html
    assert "<img" not in html


def test_the_last_download_is_the_last(world, path, refusal):
    world.change(link_id(world), max_downloads={"N": "2"})
    statuses = [world.request(path, "POST")["statusCode"] for _ in range(4)]
    assert statuses == [302, 302, 404, 404]
    assert world.request(path, "POST") == world.request(path) == refusal
    assert world.rows()[0]["downloads"]["N"] == "2"


def test_a_limit_reached_between_look_and_count_is_kept(world, path, refusal, monkeypatch):
    from lambdas.links import Links

    find = Links.find

    def overtaken(self, wanted):
        link = find(self, wanted)
        world.change(wanted, downloads={"N": "50"})
        return link

    monkeypatch.setattr(Links, "find", overtaken)
    assert world.request(path, "POST") == refusal


@pytest.mark.parametrize(
    "change",
    [
        {"revoked": {"BOOL": True}},
        {"expires_at": {"N": "1000"}},
        {"downloads": {"N": "50"}},
        {"key_id": {"S": "k9"}},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_link_that_is_over_is_like_one_that_never_was(world, path, refusal, change, method):
    world.change(link_id(world), **change)
    assert world.request(path, method) == refusal


def test_a_missing_row_and_a_missing_file_are_like_a_link_that_never_was(world, path, refusal):
    world.client("s3").delete_object(Bucket=BUCKET, Key=f"{RUN}/{FILE}")
    assert [world.request(path, method) for method in ("GET", "POST")] == [refusal] * 2
    assert world.rows()[0]["downloads"]["N"] == "0"
    world.client("dynamodb").delete_item(TableName="links", Key={"id": {"S": link_id(world)}})
    assert [world.request(path, method) for method in ("GET", "POST")] == [refusal] * 2


def test_an_expired_token_is_refused_even_when_its_row_lives(world, path, refusal):
    token = sign(world.keys, link_id(world), int(time.time()) - 1)
    world.calls.clear()
    assert world.request(f"/{token}") == refusal
    assert ("dynamodb", "GetItem") not in world.calls


def test_another_deployments_key_opens_nothing_and_asks_nothing(world, path, refusal):
    token = sign(Keys.first(), link_id(world), int(time.time()) + 1000)
    world.calls.clear()
    assert world.request(f"/{token}", "POST") == refusal
    assert not [call for call in world.calls if call[0] in ("dynamodb", "s3")]


def test_another_method_is_refused_like_everything_else(world, path, refusal):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", ""):
        assert world.request(path, method) == refusal, method


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_trick_is_refused_like_everything_else(world, path, refusal, logged, method):
    for trick in TRICKS:
        assert world.request(trick.replace("{}", path.strip("/")), method) == refusal, trick[:40]
    assert logged() == ""


def test_a_token_altered_at_any_byte_is_refused_and_asks_nothing(world, path, refusal, logged):
    world.request(path)
    world.calls.clear()
    logged()
    token = path.strip("/")
    for place in range(len(token)):
        other = "A" if token[place] != "A" else "B"
        assert world.request(f"/{token[:place]}{other}{token[place + 1 :]}", "POST") == refusal, place
    assert [call for call in world.calls if call[0] != "secretsmanager"] == []
    assert world.calls.count(("secretsmanager", "GetSecretValue")) <= 1
    assert logged() == ""


def test_ten_thousand_random_tokens_get_one_answer_leave_no_trace_and_ask_nothing(
    world, path, refusal, logged
):
    source = random.Random(4)
    alphabet = string.ascii_letters + string.digits + "-_"
    stranger = Keys.first()
    logged()
    for number in range(10_000):
        match number % 4:
            case 0:
                token = "".join(source.choices(alphabet, k=source.randrange(1, 140)))
            case 1:
                token = (
                    "".join(source.choices(alphabet, k=36)) + "." + "".join(source.choices(alphabet, k=43))
                )
            case 2:
                token = sign(stranger, new_link_id(), 2**33)
            case _:
                token = sign(Keys(f"k{number}", {f"k{number}": source.randbytes(32)}), new_link_id(), 2**33)
        assert world.request(f"/{token}", source.choice(["GET", "POST"])) == refusal
    assert logged() == ""
    assert {call[0] for call in world.calls} <= {"secretsmanager"}
    assert len(world.calls) <= 2


def test_a_visit_is_logged_by_the_links_hash_alone(world, path, logged):
    world.request(path)
    world.request(path, "POST")
    text = logged()
    assert "link.page" in text
    assert "link.download" in text
    payload, mac = path.strip("/").split(".")
    for secret in (payload, mac, link_id(world), "X-Amz-Signature"):
        assert secret not in text


@pytest.mark.parametrize("down", ["dynamodb", "s3", "secretsmanager"])
def test_a_system_that_is_down_looks_like_a_refusal_and_is_logged_as_a_fault(
    world, path, refusal, down, monkeypatch, logged
):
    from botocore.client import BaseClient
    from botocore.exceptions import ClientError

    from lambdas.download.handler import downloads

    original = BaseClient._make_api_call

    def refuse(self, operation, parameters):
        if self.meta.service_model.service_name == down:
            error = {"Error": {"Code": "Throttled"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
            raise ClientError(error, operation)
        return original(self, operation, parameters)

    downloads.cache_clear()
    monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
    assert world.request(path) == refusal
    text = logged()
    assert "link.fault" in text
    assert goes_off("export-link-faults", embedded(text))
    assert path.strip("/") not in text


def test_links_survive_one_rotation_and_new_ones_work_at_once(world, path):
    world.request(path)
    rotated = world.keys.rotated()
    world.store_keys(rotated)
    token = sign(rotated, link_id(world), 2**33)
    world.change(link_id(world), key_id={"S": "k2"})
    assert world.request(f"/{token}")["statusCode"] == 200
    world.change(link_id(world), key_id={"S": "k1"})
    assert world.request(path)["statusCode"] == 200
