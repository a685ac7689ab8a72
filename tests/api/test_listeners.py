"""The listeners of a document as one transaction: addresses, keys and certificates, all of it or nothing."""

import asyncio
import hashlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.http_world import World, chat, events_of, text_of, wire
from support.played.world import until
from support.ports import free_port
from support.scripted_router import ScriptedRouter, deltas, finished
from support.tls_files import Pair, make_pair

from halogend.api import listeners
from halogend.api.addresses import Address, Found
from halogend.api.applications import Applications
from halogend.api.listener import Listener
from halogend.api.listeners import Listeners
from halogend.config.codes import Code
from halogend.config.schema import ServerConfig
from halogend.control.access import Access
from halogend.control.certificates import Certificate, read_certificate
from halogend.control.keys import Key
from halogend.obs.metrics import Metrics

CHAT = "/v1/chat/completions"


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def names_below(folder: Path) -> list[str]:
    return sorted(str(each) for each in folder.rglob("*"))


def keys(**values: str) -> tuple[Key, ...]:
    """`operator` opens the admin listener, every other name inference."""
    scopes = {"operator": frozenset({"admin"})}
    return tuple(
        Key(name, scopes.get(name, frozenset({"infer"})), hashlib.sha256(value.encode()).digest())
        for name, value in values.items()
    )


def bearer(value: str) -> dict[str, str]:
    return {"authorization": f"Bearer {value}"}


class House:
    """`listeners` around a scripted application; `apply` is a whole change."""

    def __init__(self, folder: Path) -> None:
        self.router = ScriptedRouter()
        self.port = free_port()
        self.folder = folder
        self.metrics = Metrics("1")
        make = Applications(lambda: World(self.router).app, lambda: World(self.router).app)
        self.listeners = Listeners(make, self.metrics, f"unix:{folder}/admin.sock")

    async def apply(self, access: Access | None = None, **server: Any) -> str | None:
        """The code of a refusal."""
        config = ServerConfig.model_validate({"port": self.port, **server})
        problem = await self.listeners.prepare(config, access or Access())
        if problem is not None:
            await self.listeners.discard()
        problem = problem or await self.listeners.commit()
        return None if problem is None else problem.code

    async def status(self, port: int | None = None, key: str = "", tls: ssl.SSLContext | None = None) -> int:
        """Of GET /v1/models; 0 when nobody answers."""
        url = f"{'https' if tls else 'http'}://127.0.0.1:{port or self.port}/v1/models"
        try:
            async with httpx.AsyncClient(verify=tls or True) as client:
                return (await client.get(url, headers=bearer(key) if key else {})).status_code
        except httpx.TransportError:
            return 0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.listeners.close(0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def certificate(pair: Pair) -> Certificate:
    return read_certificate(pair.config, time.time())[0]


async def test_keys_come_change_and_go_on_one_port(house: House) -> None:
    assert await house.apply() is None
    assert await house.status() == 200
    assert await house.apply(Access(keys=keys(a="one"), overlap_s=60)) is None
    assert [await house.status(key=value) for value in ("", "one", "two")] == [401, 200, 401]
    assert await house.apply(Access(keys=keys(a="two"), overlap_s=60)) is None
    assert [await house.status(key=value) for value in ("one", "two")] == [200, 200]
    assert house.listeners.view()["keys"][0]["previous_valid_s"] > 50
    assert await house.apply(Access(keys=keys(b="three"), overlap_s=60)) is None
    assert [await house.status(key=value) for value in ("one", "two", "three")] == [401, 401, 200]
    assert await house.apply() is None
    assert await house.status() == 200
    assert house.listeners.view()["auth"] == "open"


async def test_without_keys_a_listener_is_for_who_is_on_the_machine(house: House) -> None:
    async def asked(host: str) -> int:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{house.port}/v1/models", headers={"host": host})).status_code

    foreign = f"rebind.example:{house.port}"
    assert await house.apply(Access(is_unstated=True)) is None
    assert [await asked(each) for each in (foreign, socket.gethostname(), "localhost")] == [421, 200, 200]
    assert await house.apply(Access()) is None  # open access was written
    assert await asked(foreign) == 200
    assert await house.apply(Access(is_unstated=True)) is None
    assert await asked(foreign) == 421


async def test_a_listener_that_is_for_this_machine_is_so_from_its_first_moment(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last one was open to everybody, and moves."""
    assert await house.apply(Access()) is None  # open access was written
    serve, asked = house.listeners._serve, []

    async def served(wish: Any) -> Any:
        asked.append(wish.rings["inference"].read().is_unstated)
        return await serve(wish)

    monkeypatch.setattr(house.listeners, "_serve", served)
    assert await house.apply(Access(is_unstated=True), port=free_port()) is None
    assert asked == [True]


async def test_a_stream_is_never_asked_again(house: House) -> None:
    house.router.manual = True
    await house.apply(Access(keys=keys(a="one")))
    async with wire(house.port) as client:
        client.post(CHAT, chat(stream=True), headers="authorization: Bearer one\r\n")
        answer = await house.router.answers.get()
        answer.push(*deltas("before "))
        await client.head()
        await house.apply(Access(keys=keys(b="other")))
        assert await house.status(key="one") == 401
        answer.push(*deltas("after"), finished())
        body = (await client.reader.readuntil(b"[DONE]\n\n")).decode()
    assert "before " in body
    assert "after" in body


async def test_l4_a_busy_port_leaves_address_keys_and_certificate_as_they_were(
    house: House, pair: Pair, certificate: Certificate
) -> None:
    await house.apply(Access(keys=keys(a="one")))
    before = house.listeners.view()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        access = Access(keys=keys(b="two"), tls=certificate)
        assert await house.apply(access, port=port, tls=pair.config) == Code.PORT_BUSY
    assert house.listeners.view() == before
    assert [await house.status(key=value) for value in ("one", "two", "")] == [200, 401, 401]


async def test_l3_a_port_lost_between_bind_and_listen_undoes_all_of_it(house: House, certificate: Certificate) -> None:
    await house.apply(Access(keys=keys(a="one")))
    before, port = house.listeners.view(), free_port()
    config = ServerConfig.model_validate({"port": port})
    assert await house.listeners.prepare(config, Access(keys=None)) is None
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        problem = await house.listeners.commit()
    assert problem is not None
    assert (problem.code, problem.path) == (Code.PORT_BUSY, "server.port")
    assert house.listeners.view() == before
    assert [await house.status(key=value) for value in ("one", "")] == [200, 401]


async def test_l3_an_admin_port_lost_is_told_at_its_own_field(house: House, certificate: Certificate) -> None:
    """The inference listener, which could be had, is given back as well."""
    port, admin_port = free_port(), free_port()
    await house.apply()
    config = ServerConfig.model_validate({"port": port, "admin": f"127.0.0.1:{admin_port}"})
    access = Access(keys=keys(operator="o"), admin_tls=certificate)
    assert await house.listeners.prepare(config, access) is None
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", admin_port))
        other.listen()
        problem = await house.listeners.commit()
    assert problem is not None
    assert (problem.code, problem.path) == (Code.PORT_BUSY, "server.admin")
    assert [await house.status(port), await house.status()] == [0, 200]


async def test_l3_a_certificate_that_cannot_be_put_in_undoes_all_of_it(
    house: House, pair: Pair, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of descriptors, while a new admin listener is asked for as well."""
    await house.apply(Access(keys=keys(operator="o", a="one")))
    before, admin_port = house.listeners.view(), free_port()

    async def refuse(*_: object) -> asyncio.Server:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Listener, "_accept", refuse)
    access = Access(keys=keys(operator="x"), tls=certificate, admin_tls=certificate)
    assert await house.apply(access, admin=f"127.0.0.1:{admin_port}") == Code.LISTENER_ADDRESS
    monkeypatch.undo()
    assert house.listeners.view() == before
    assert [await house.status(key="one"), await house.status(admin_port, "x", pair.client())] == [200, 0]


@pytest.mark.parametrize(
    ("old", "new", "open_while_served"),
    [(None, "one", False), ("one", None, False), (None, None, True)],
    ids=["keys come", "keys go", "open"],
)
async def test_no_listener_that_wants_keys_is_open_for_a_moment(
    house: House, monkeypatch: pytest.MonkeyPatch, old: str | None, new: str | None, open_while_served: bool
) -> None:
    def access(value: str | None) -> Access:
        return Access(keys=keys(a=value) if value else None)

    await house.apply(access(old))
    seen: list[bool] = []
    serve: Callable[..., Any] = Listener.serve

    async def watched(self: Listener, context: ssl.SSLContext | None = None) -> None:
        seen.append(house.listeners._keyring.is_open)
        await serve(self, context)
        seen.append(house.listeners._keyring.is_open)

    monkeypatch.setattr(Listener, "serve", watched)
    house.port = free_port()
    await house.apply(access(new))
    assert seen == [open_while_served] * 2
    assert await house.status(key=new or "") == 200


@pytest.mark.parametrize("moved", ["admin", "inference"])
async def test_a_listener_that_is_left_is_never_opened(house: House, moved: str) -> None:
    """Who connected before may still ask; what the next document allows is not meant for there."""
    admin_port, access = free_port(), Access(keys=keys(a="one", operator="two"))
    await house.apply(access, admin=f"127.0.0.1:{admin_port}")
    port = admin_port if moved == "admin" else house.port
    async with wire(port) as nobody, wire(port) as known:
        if moved == "inference":
            house.port = free_port()
        assert await house.apply() is None
        nobody.writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        assert "401 unauthorized" in await nobody.head()
        key = b"two" if moved == "admin" else b"one"
        known.writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + key + b"\r\n\r\n")
        assert "200 ok" in await known.head()
    assert await house.status() == 200


async def test_a_change_that_fails_leaves_every_listener_its_keys(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.apply(Access(keys=keys(a="one")))

    async def refuse(*_: object) -> asyncio.Server:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Listener, "_accept", refuse)
    assert await house.apply(Access(keys=keys(b="two")), port=free_port()) == Code.LISTENER_ADDRESS
    monkeypatch.undo()
    assert [await house.status(key=value) for value in ("one", "two", "")] == [200, 401, 401]


async def test_what_was_prepared_and_never_committed_is_let_go(house: House) -> None:
    ports = [free_port(), free_port()]
    for port in ports:
        assert await house.listeners.prepare(ServerConfig.model_validate({"port": port}), Access()) is None
    assert [is_free(port) for port in ports] == [True, False]


async def test_an_admin_socket_that_is_only_prepared_leaves_no_trace(house: House, tmp_path: Path) -> None:
    await house.apply()
    before = names_below(tmp_path)
    wanted = ServerConfig.model_validate({"port": house.port, "admin": f"unix:{tmp_path}/other/admin.sock"})
    assert await house.listeners.prepare(wanted, Access()) is None
    assert names_below(tmp_path) == before
    await house.listeners.discard()
    assert names_below(tmp_path) == before
    assert await house.apply(admin=f"unix:{tmp_path}/other/admin.sock") is None
    assert (tmp_path / "other/admin.sock").is_socket()


async def test_an_admin_socket_that_cannot_be_made_after_all_leaves_everything_as_it_was(
    house: House, tmp_path: Path
) -> None:
    await house.apply()
    before, port = house.listeners.view(), free_port()
    wanted = ServerConfig.model_validate({"port": port, "admin": f"unix:{tmp_path}/other/admin.sock"})
    assert await house.listeners.prepare(wanted, Access()) is None
    (tmp_path / "other").write_text("")
    problem = await house.listeners.commit()
    assert problem is not None
    assert (problem.code, problem.path) == (Code.ADMIN_SOCKET, "server.admin")
    assert house.listeners.view() == before
    assert [await house.status(), await house.status(port)] == [200, 0]
    assert (tmp_path / "admin.sock").is_socket()


async def test_an_admin_socket_whose_file_was_removed_is_put_back(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_LOOK_EVERY_S", 0.01)
    await house.apply()
    path = tmp_path / "admin.sock"
    path.unlink()
    keeping = asyncio.create_task(house.listeners.keep())
    await until(lambda: house.listeners._serving.listeners["admin"].is_in_place, "it is back")
    keeping.cancel()
    assert path.is_socket()


async def test_an_admin_socket_that_was_moved_meanwhile_is_not_put_back(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_LOOK_EVERY_S", 0.01)
    await house.apply()
    asked, answers, find = threading.Event(), threading.Event(), listeners.find

    def slow(address: Address) -> Found:
        if str(address).endswith("/admin.sock"):
            asked.set()
            answers.wait(5)
        return find(address)

    monkeypatch.setattr(listeners, "find", slow)
    (tmp_path / "admin.sock").unlink()
    keeping = asyncio.create_task(house.listeners.keep())
    await asyncio.to_thread(asked.wait, 5)
    assert await house.apply(admin=f"unix:{tmp_path}/moved.sock") is None
    moved = house.listeners._serving.listeners["admin"]
    served = asyncio.Event()
    real = Listener.close

    async def close(listener: Listener, deadline_s: float) -> None:
        await real(listener, deadline_s)
        served.set()

    monkeypatch.setattr(Listener, "close", close)
    answers.set()
    async with asyncio.timeout(10):
        await served.wait()
    keeping.cancel()
    assert house.listeners._serving.listeners["admin"] is moved
    assert names_below(tmp_path) == [f"{tmp_path}/moved.sock"]


async def test_a_host_that_no_name_server_tells_of_stops_nothing_and_is_a_problem(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.apply()
    asked, answers, resolve = threading.Event(), threading.Event(), socket.getaddrinfo

    def slow(host: Any, *rest: Any, **options: Any) -> Any:
        if host == "typo.example":
            asked.set()
            answers.wait(5)
        return resolve(host if host != "typo.example" else "127.0.0.1", *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(listeners, "_FIND_S", 0.5)
    config = ServerConfig.model_validate({"port": free_port(), "host": "typo.example"})
    preparing = asyncio.create_task(house.listeners.prepare(config, Access()))
    await asyncio.to_thread(asked.wait, 5)
    assert await house.status() == 200
    problem = await preparing
    answers.set()
    assert problem is not None
    assert (problem.code, problem.path) == (Code.LISTENER_ADDRESS, "server.port")
    assert "no name server told within 0.5 s" in problem.message


async def test_tls_and_the_admin_listener_on_tcp(house: House, pair: Pair, certificate: Certificate) -> None:
    admin_port, trust = free_port(), pair.client()
    await house.apply()
    assert (house.folder / "admin.sock").is_socket()
    access = Access(keys=keys(a="one", operator="two"), tls=certificate, admin_tls=certificate)
    assert await house.apply(access, admin=f"127.0.0.1:{admin_port}") is None
    assert not (house.folder / "admin.sock").exists()
    assert [await house.status(key=value, tls=trust) for value in ("one", "two", "")] == [200, 403, 401]
    assert [await house.status(admin_port, value, trust) for value in ("one", "two", "")] == [403, 200, 401]
    assert [await house.status(key="one"), await house.status(admin_port, "two")] == [0, 0]
    shown = house.listeners.view()["listeners"]
    assert shown["admin"]["address"] == f"127.0.0.1:{admin_port}"
    assert shown["inference"]["tls"]["cert"] == str(pair.cert)
    name = "halogen_tls_certificate_expiry_timestamp_seconds"
    registry = house.metrics._registry
    assert registry.get_sample_value(name, {"listener": "admin"}) == certificate.not_after
    assert await house.apply() is None
    assert (house.folder / "admin.sock").is_socket()
    assert [await house.status(), await house.status(admin_port, "two", trust)] == [200, 0]
    assert registry.get_sample_value(name, {"listener": "admin"}) is None


async def test_the_same_certificate_is_not_put_in_again(
    house: House, pair: Pair, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.apply(Access(tls=certificate))

    async def never(*_: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(Listener, "open", never)
    again = read_certificate(pair.config, time.time())[0]
    assert await house.apply(Access(tls=again)) is None
    monkeypatch.undo()
    async with httpx.AsyncClient(verify=pair.client()) as client:
        answer = await client.post(f"https://127.0.0.1:{house.port}{CHAT}", json=chat(stream=True))
    assert text_of(events_of(answer.text)) == "Hello, wörld 😀"
