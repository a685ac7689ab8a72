"""A listener that moves on its own port: wider, narrower, to another family, or in exchange with the other."""

import asyncio
import contextlib
import http.client
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from support.http_world import World
from support.ports import free_port
from support.scripted_router import ScriptedRouter

from halogend.api import beside
from halogend.api.applications import Applications
from halogend.api.listener import Listener
from halogend.api.listeners import Listeners
from halogend.config.codes import Code
from halogend.config.schema import ServerConfig
from halogend.control.access import Access
from halogend.obs.metrics import Metrics

ANY = "0.0.0.0"  # noqa: S104  the address that stands for all others is what is tested
LOOPBACK = "127.0.0.1"
GONE = "ConnectionRefusedError"


def ask(host: str, port: int) -> int | str:
    """Status of one GET over a connection of its own, or the kind of error."""
    connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        connection.request("GET", "/v1/models", headers={"connection": "close"})
        answer = connection.getresponse()
        answer.read()
    except OSError as error:
        return type(error).__name__
    finally:
        connection.close()
    return answer.status


class Callers:
    """Threads that ask one after the other, each request over a connection of its own."""

    def __init__(self, host: str, port: int, count: int = 4) -> None:
        self.statuses: list[int | str] = []
        self._where = (host, port)
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(count)]

    async def __aenter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def until(self, count: int) -> None:
        await asyncio.to_thread(self._until, count)

    def _until(self, count: int) -> None:
        while len(self.statuses) < count and not self._ends.wait(0.002):
            pass

    def _call(self) -> None:
        while not self._ends.is_set():
            self.statuses.append(ask(*self._where))
            if self.statuses[-1] == GONE:
                self._ends.wait(0.002)


class House:
    """Listeners around scripted applications, and `move`, which is a whole change."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        world = World(ScriptedRouter())
        make = Applications(lambda: world.app, lambda: world.app)
        self.listeners = Listeners(make, Metrics("1"), f"unix:{folder}/admin.sock")

    async def move(self, host: str, **server: Any) -> str | None:
        config = ServerConfig.model_validate({"host": host, "port": self.port, **server})
        problem = await self.listeners.prepare(config, Access()) or await self.listeners.commit()
        await self.listeners.discard()
        await asyncio.sleep(0)  # an address that is left is closed in the next turn
        return None if problem is None else problem.code

    async def asked(self, *hosts: str, port: int | None = None) -> list[int | str]:
        return [await asyncio.to_thread(ask, host, port or self.port) for host in hosts]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.listeners.close(0)


@contextlib.contextmanager
def listening(host: str, port: int, **options: int) -> Iterator[socket.socket]:
    with socket.socket() as sock:
        for name, value in options.items():
            sock.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        sock.bind((host, port))
        sock.listen()
        yield sock


def can_share(host: str, port: int) -> bool:
    """May another program of this user listen there if it asks the kernel to share?"""
    try:
        with listening(host, port, SO_REUSEADDR=1, SO_REUSEPORT=1):
            return True
    except OSError:
        return False


MOVES = {
    (LOOPBACK, ANY): {LOOPBACK: 200, "127.0.0.2": 200, "::1": GONE},
    (ANY, LOOPBACK): {LOOPBACK: 200, "127.0.0.2": GONE},
    (LOOPBACK, "::"): {LOOPBACK: 200, "127.0.0.2": 200, "::1": 200},
    ("::", LOOPBACK): {LOOPBACK: 200, "127.0.0.2": GONE, "::1": GONE},
    ("::1", "::"): {LOOPBACK: 200, "::1": 200},
    ("::", "::1"): {LOOPBACK: GONE, "::1": 200},
    (LOOPBACK, "::1"): {LOOPBACK: GONE, "::1": 200},
    (ANY, "::"): {LOOPBACK: 200, "::1": 200},
    ("::", ANY): {LOOPBACK: 200, "127.0.0.2": 200, "::1": GONE},
    (LOOPBACK, "localhost"): {LOOPBACK: 200, "127.0.0.2": GONE},
    ("localhost", "::"): {LOOPBACK: 200, "127.0.0.2": 200, "::1": 200},
    (LOOPBACK, "127.0.0.2"): {LOOPBACK: GONE, "127.0.0.2": 200},
}


@pytest.mark.parametrize(("old", "new"), MOVES, ids=lambda each: each)
async def test_a_host_is_changed_on_its_port(house: House, old: str, new: str) -> None:
    assert await house.move(old) is None
    assert await house.move(new) is None
    wanted = MOVES[old, new]
    assert dict(zip(wanted, await house.asked(*wanted), strict=True)) == wanted
    if new == ANY:
        assert not can_share(LOOPBACK, house.port)
        assert not can_share(ANY, house.port)


async def test_a_thousand_of_a_thousand_are_answered_while_the_host_is_changed(house: House) -> None:
    """Wider, narrower, both stacks, one of them: on the old address nobody is refused, nobody is cut."""
    await house.move(LOOPBACK)
    hosts = [ANY, LOOPBACK, "::", LOOPBACK, "::", ANY, LOOPBACK, "localhost", "::", LOOPBACK]
    async with Callers(LOOPBACK, house.port) as callers:
        for number in range(1, 31):
            await callers.until(number * 34)
            assert await house.move(hosts[number % len(hosts)]) is None
        await callers.until(1_050)
    assert len(callers.statuses) >= 1_000
    assert set(callers.statuses) == {200}


async def test_a_port_that_is_left_refuses_and_resets_nobody(house: House) -> None:
    """Whoever is let in is answered, at the very moment of the change too; whoever is not may ask again safely."""
    ports = [house.port, free_port()]
    await house.move(LOOPBACK)
    async with Callers(LOOPBACK, ports[0]) as first, Callers(LOOPBACK, ports[1]) as second:
        for number in range(60):
            there = (second, first)[number % 2]
            answered = len(there.statuses)
            assert await house.move(LOOPBACK, port=ports[(number + 1) % 2]) is None
            await there.until(answered + 4)
    for callers in (first, second):
        assert set(callers.statuses) == {200, GONE}


async def test_l4_a_busy_port_is_refused_and_the_old_one_answers_a_thousand_of_a_thousand(house: House) -> None:
    """Another port, and its own port on every address, where another program has one of them."""
    await house.move(LOOPBACK)
    before = house.listeners.view()
    with listening(LOOPBACK, 0) as taken, listening("127.0.0.2", house.port):
        async with Callers(LOOPBACK, house.port) as callers:
            for number in range(1, 21):
                await callers.until(number * 50)
                assert await house.move(LOOPBACK, port=taken.getsockname()[1]) == Code.PORT_BUSY
                assert await house.move(ANY) == Code.PORT_BUSY
            await callers.until(1_000)
    assert set(callers.statuses) == {200}
    assert house.listeners.view() == before


async def test_l4_a_program_that_would_share_the_port_is_seen(house: House) -> None:
    """The kernel would let the two listen together: same user, and the other one asks for it."""
    await house.move(LOOPBACK)
    before = house.listeners.view()
    with listening("127.0.0.2", house.port, SO_REUSEPORT=1):
        assert await house.move(ANY) == Code.PORT_BUSY
    assert house.listeners.view() == before
    assert await house.asked(LOOPBACK, "127.0.0.2") == [200, GONE]
    assert not can_share(LOOPBACK, house.port)


async def test_the_two_listeners_exchange_their_ports(house: House) -> None:
    admin = free_port()
    await house.move(LOOPBACK, admin=f"{LOOPBACK}:{admin}")
    async with Callers(LOOPBACK, house.port, 2) as ours, Callers(LOOPBACK, admin, 2) as others:
        for port, other in ((admin, house.port), (house.port, admin)):
            await ours.until(len(ours.statuses) + 50)
            assert await house.move(LOOPBACK, port=port, admin=f"{LOOPBACK}:{other}") is None
        await others.until(len(others.statuses) + 50)
    assert set(ours.statuses + others.statuses) == {200, 401}  # the admin listener asks for a key
    assert await house.asked(LOOPBACK) == [200]
    shown = house.listeners.view()["listeners"]
    assert (shown["inference"]["address"], shown["admin"]["address"]) == (
        f"{LOOPBACK}:{house.port}",
        f"{LOOPBACK}:{admin}",
    )


async def test_the_port_of_the_listener_that_stays_is_told_as_our_own(house: House) -> None:
    admin = free_port()
    await house.move(LOOPBACK, admin=f"127.0.0.2:{admin}")
    config = ServerConfig.model_validate({"host": "127.0.0.2", "port": admin, "admin": f"127.0.0.2:{admin}"})
    problem = await house.listeners.prepare(config, Access())
    assert problem is not None
    assert (problem.code, problem.path) == (Code.PORT_BUSY, "server.port")
    assert f"own admin listener is at 127.0.0.2:{admin}" in problem.hint


@pytest.mark.parametrize(("old", "new"), [(LOOPBACK, ANY), (ANY, LOOPBACK), (LOOPBACK, "::")])
async def test_l3_a_move_that_fails_at_the_last_leaves_the_old_address(
    house: House, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    await house.move(old)
    before, hosts = house.listeners.view(), (LOOPBACK, "127.0.0.2", "::1")
    answers = await house.asked(*hosts)
    open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a count, not paths

    async def refuse(*_: object) -> asyncio.Server:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Listener, "_accept", refuse)
    assert await house.move(new) == Code.LISTENER_ADDRESS
    monkeypatch.undo()
    assert house.listeners.view() == before
    assert await house.asked(*hosts) == answers
    assert len(os.listdir("/proc/self/fd")) == open_files  # noqa: PTH208  as above
    assert await house.move(new) is None


async def test_l3_an_exchange_of_which_half_fails_cuts_nobody(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that could be served for a moment has let callers in: they are answered, and the old two go on."""
    admin, accept = free_port(), Listener._accept
    await house.move(LOOPBACK, admin=f"{LOOPBACK}:{admin}")
    before, calls = house.listeners.view(), []

    async def refuse_every_second(self: Listener, *given: Any) -> asyncio.Server:
        calls.append(1)
        if len(calls) % 2 == 0:
            raise OSError(24, "Too many open files")
        made = await accept(self, *given)
        await asyncio.sleep(0.01)  # for callers to come in
        return made

    monkeypatch.setattr(Listener, "_accept", refuse_every_second)
    async with Callers(LOOPBACK, house.port, 2) as ours, Callers(LOOPBACK, admin, 2) as others:
        for _ in range(10):
            await ours.until(len(ours.statuses) + 10)
            assert await house.move(LOOPBACK, port=admin, admin=f"{LOOPBACK}:{house.port}") == Code.LISTENER_ADDRESS
        await others.until(len(others.statuses) + 10)
    assert set(ours.statuses + others.statuses) == {200, 401}
    assert house.listeners.view() == before
    assert await house.asked(LOOPBACK) == [200]


async def test_what_waits_in_the_queue_of_an_address_that_is_left_is_answered(house: House) -> None:
    """It was let in by the kernel before the change, and nobody looked for it yet."""
    await house.move(ANY)
    old, port = house.port, free_port()
    with contextlib.ExitStack() as stack:
        config = ServerConfig.model_validate({"host": ANY, "port": port})
        assert await house.listeners.prepare(config, Access()) is None
        waiting = []

        def connect() -> None:
            waiting.append(stack.enter_context(socket.create_connection((LOOPBACK, old), timeout=10)))
            waiting[-1].sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")

        leave = house.listeners._leave

        def leave_late(*given: Any) -> None:
            connect()
            leave(*given)
            connect()

        house.listeners._leave = leave_late  # type: ignore[method-assign]  # what comes at this very moment
        assert await house.listeners.commit() is None
        del house.listeners._leave
        got = [await asyncio.to_thread(each.recv, 12) for each in waiting]
    assert got == [b"HTTP/1.1 200"] * 2
    assert await house.asked(LOOPBACK, port=old) == [GONE]


# --- the kernel's table ---------------------------------------------------------------------------

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {where} {there} {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0 100 0 0 10 0\n"


def table(proc: Path, name: str, rows: list[tuple[str, str, int]]) -> None:
    (proc / "net").mkdir(parents=True, exist_ok=True)
    text = "".join(ROW.format(where=where, there="0" * 8 + ":0000", state=state, inode=n) for where, state, n in rows)
    (proc / "net" / name).write_text(HEAD + text)


def bound(port: int, host: str = ANY) -> socket.socket:
    sock = socket.socket()
    sock.bind((host, port))
    return sock


def test_strangers_are_those_that_listen_on_the_port_and_are_not_ours(tmp_path: Path) -> None:
    with bound(0) as sock, bound(0, LOOPBACK) as ours:
        port, inode = sock.getsockname()[1], os.fstat(ours.fileno()).st_ino
        at = f":{port:04X}"
        rows = [
            ("0100007F" + at, "0A", inode),  # ours
            ("0100007F" + at, "01", 5),  # a connection
            ("0200007F:0001", "0A", 6),  # another port
            ("0500000A" + at, "0A", 7),
        ]
        table(tmp_path, "tcp", rows)
        assert beside.strangers(sock, [sock, ours], tmp_path) == ["10.0.0.5"]
        table(tmp_path, "tcp", rows[:3])
        assert beside.strangers(sock, [sock, ours], tmp_path) == []


def test_a_socket_for_one_address_meets_that_one_and_every(tmp_path: Path) -> None:
    with bound(0, LOOPBACK) as sock:
        at = f":{sock.getsockname()[1]:04X}"
        table(tmp_path, "tcp", [("0500000A" + at, "0A", 7), ("00000000" + at, "0A", 8), ("0100007F" + at, "0A", 9)])
        assert beside.strangers(sock, [sock], tmp_path) == [ANY, LOOPBACK]


def test_ipv6_addresses_are_read(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as sock:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("::", 0))
        at = f":{sock.getsockname()[1]:04X}"
        table(tmp_path, "tcp6", [("0" * 24 + "01000000" + at, "0A", 7), ("B80D0120" + "0" * 24 + at, "0A", 8)])
        assert beside.strangers(sock, [sock], tmp_path) == ["::1", "2001:db8::"]


async def test_without_the_table_nothing_is_shared(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be proved free is refused, and the old address serves on."""
    await house.move(LOOPBACK)
    monkeypatch.setattr("halogend.api.addresses._PROC", Path("/nowhere"))
    assert await house.move(ANY) == Code.LISTENER_ADDRESS
    assert await house.asked(LOOPBACK) == [200]
