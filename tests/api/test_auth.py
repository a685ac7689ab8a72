"""The guard before an application: who comes in, who does not, and what they are told."""

import hashlib

import httpx
import pytest
import structlog
from starlette.types import Receive, Scope, Send
from support.http_world import ROUTES, World, chat, served
from support.scripted_router import ScriptedRouter

from halogend.api.auth import PROBES, Guard
from halogend.control.keys import Key, Keyring
from halogend.obs.metrics import Metrics

ALICE, OPERATOR = "alice-key-0123456789", "operator-key-0123456789"


def key(name: str, value: str, *scopes: str) -> Key:
    return Key(name, frozenset(scopes), hashlib.sha256(value.encode()).digest())


KEYS = Keyring((key("alice", ALICE, "infer"), key("operator", OPERATOR, "admin")))


class Guarded(World):
    """The inference application behind a guard; `keyring` may be changed."""

    def __init__(self, keyring: Keyring = KEYS) -> None:
        super().__init__(ScriptedRouter())
        self.keyring = keyring
        self.now = 0.0
        self.app = Guard(self.app, lambda: self.keyring, "infer", self.metrics, clock=lambda: self.now)


def bearer(value: str) -> dict[str, str]:
    return {"authorization": f"Bearer {value}"}


async def test_every_route_wants_a_key_but_probes_and_metrics() -> None:
    world = Guarded()
    inner = World(ScriptedRouter()).app
    async with world.client() as client:
        for route in inner.routes:
            method = "POST" if "POST" in route.methods else "GET"
            answer = await client.request(method, route.path.replace("{name:path}", "chat"))
            assert (answer.status_code == 401) == (route.path not in PROBES), route.path
        assert (await client.get("/no/such/path")).status_code == 401
    assert {route.path for route in inner.routes} >= PROBES


async def test_a_refusal_has_the_shape_of_all_errors_and_a_challenge() -> None:
    world = Guarded()
    async with world.client() as client:
        none = await client.post("/v1/chat/completions", json=chat())
        wrong = await client.post("/v1/chat/completions", json=chat(), headers=bearer("nobody's"))
        other = await client.post("/v1/chat/completions", json=chat(), headers=bearer(OPERATOR))
    assert [each.status_code for each in (none, wrong, other)] == [401, 401, 403]
    assert [each.headers["www-authenticate"] for each in (none, wrong, other)] == [
        'Bearer realm="halogend"',
        'Bearer realm="halogend", error="invalid_token"',
        'Bearer realm="halogend", error="insufficient_scope"',
    ]
    for answer, code, explain in (
        (none, "invalid_api_key", "HAP-1016"),
        (wrong, "invalid_api_key", "HAP-1016"),
        (other, "insufficient_scope", "HAP-1017"),
    ):
        error = answer.json()["error"]
        assert (error["code"], error["explain"], error["type"]) == (code, explain, "invalid_request_error")
        assert "nobody's" not in answer.text
        assert OPERATOR not in answer.text
    assert world.sample("access_refused_total", scope="infer", reason="missing_api_key") == 1
    assert world.sample("access_refused_total", scope="infer", reason="insufficient_scope") == 1


@pytest.mark.parametrize("path", ROUTES)
async def test_a_key_opens_every_route(path: str) -> None:
    async with Guarded().client() as client:
        assert (await client.post(path, json=ROUTES[path](), headers=bearer(ALICE))).status_code == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {ALICE}", 200),
        (f"bearer {ALICE}", 200),
        (f"BEARER   {ALICE}  ", 200),
        (f"Basic {ALICE}", 401),
        (ALICE, 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("", 401),
        (f"Bearer {ALICE}x", 401),
        (f"Bearer {ALICE[:-1]}", 401),
        (f"Bearer {ALICE.upper()}", 401),
        (f"Bearer {ALICE}, Bearer {ALICE}", 401),
        (f"Bearer\t{ALICE}", 401),
    ],
)
async def test_headers_that_carry_a_key_and_that_do_not(header: str, status: int) -> None:
    async with Guarded().client() as client:
        assert (await client.get("/v1/models", headers={"authorization": header})).status_code == status


async def test_two_headers_are_none() -> None:
    async with Guarded().client() as client:
        both = [("authorization", f"Bearer {ALICE}"), ("authorization", "Bearer x")]
        assert (await client.get("/v1/models", headers=both)).status_code == 401


async def test_bytes_that_are_no_text_are_a_wrong_key() -> None:
    async with Guarded().client() as client:
        answer = await client.get("/v1/models", headers=[(b"authorization", b"Bearer \xff\xfe\x80")])
    assert answer.status_code == 401


async def test_keys_change_between_two_requests_of_one_connection() -> None:
    world = Guarded(Keyring())
    async with served(world) as (_, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/v1/models")).status_code == 200
        world.keyring = KEYS
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.get("/v1/models", headers=bearer(ALICE))).status_code == 200
        world.keyring = KEYS.followed_by((key("alice", "new", "infer"),), 60, 0.0)
        assert (await client.get("/v1/models", headers=bearer(ALICE))).status_code == 200
        world.now = 60.0
        assert (await client.get("/v1/models", headers=bearer(ALICE))).status_code == 401
        assert (await client.get("/v1/models", headers=bearer("new"))).status_code == 200


async def test_a_refused_body_is_not_read_and_the_connection_serves_on() -> None:
    async with served(Guarded()) as (_, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        large = await client.post("/v1/completions", content=b"x" * (11 << 20))
        assert large.status_code == 401
        assert (await client.get("/v1/models", headers=bearer(ALICE))).status_code == 200


async def _names(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answers with what the request path sees of the key, and what a log line would carry."""
    bound = structlog.contextvars.get_contextvars().get("key")
    body = f"{(scope.get('state') or {}).get('key')} {bound}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def test_the_request_path_and_the_log_know_the_keys_name() -> None:
    guard = Guard(_names, lambda: KEYS, "infer", Metrics("1"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://x") as client:
        assert (await client.get("/", headers=bearer(ALICE))).text == "alice alice"
        assert (await client.get("/livez")).text == "None None"


async def test_the_admin_scope_has_no_open_path() -> None:
    guard = Guard(_names, lambda: KEYS, "admin", Metrics("1"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://x") as client:
        assert [(await client.get(path)).status_code for path in PROBES] == [401] * len(PROBES)
        assert (await client.get("/", headers=bearer(ALICE))).status_code == 403
        assert (await client.get("/", headers=bearer(OPERATOR))).text == "operator operator"


async def test_where_everybody_may_that_is_for_inference_alone() -> None:
    guard = Guard(_names, Keyring, "admin", Metrics("1"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://x") as client:
        assert [(await client.get("/", headers=each)).status_code for each in ({}, bearer(OPERATOR))] == [401, 401]


async def test_attempts_are_counted_each_and_logged_now_and_then() -> None:
    world = Guarded()
    with structlog.testing.capture_logs() as lines:
        async with world.client() as client:
            for second in (0.0, 1.0, 2.0, 11.0):
                world.now = second
                await client.get("/v1/models", headers=bearer("guess"))
    told = [line for line in lines if line["event"] == "access_refused"]
    assert [line["others_since"] for line in told] == [0, 2]
    assert "guess" not in str(told)
    assert world.sample("access_refused_total", scope="infer", reason="invalid_api_key") == 4


async def test_open_inference_beside_keys_opens_no_admin_listener() -> None:
    keyring = Keyring(KEYS.keys, lets_all_infer=True)
    for scope, wanted in (("infer", [200, 200]), ("admin", [401, 200])):
        guard = Guard(_names, lambda: keyring, scope, Metrics("1"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://x") as client:
            assert [(await client.get("/", headers=each)).status_code for each in ({}, bearer(OPERATOR))] == wanted
