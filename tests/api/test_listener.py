"""Addresses: what is refused and why, and unix sockets that outlive their daemons."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.http_world import World, served
from support.played.world import until
from support.ports import free_port
from support.scripted_router import ScriptedRouter

from halogend.api.addresses import Address, ListenError, TcpAddress, UnixAddress
from halogend.api.connection import ConnectionLimits
from halogend.api.listener import Listener
from halogend.config.codes import Code


def listener(address: Address) -> Listener:
    return Listener(World(ScriptedRouter()).app, address)


def port_of(one: Listener) -> int:
    assert isinstance(one.address, TcpAddress)
    return one.address.port


def refused(address: Address) -> ListenError:
    with pytest.raises(ListenError) as caught:
        listener(address).bind()
    assert str(address) in caught.value.message
    return caught.value


@pytest.mark.parametrize("second", ["127.0.0.1", "0.0.0.0"])  # noqa: S104  # the clash is what is tested
async def test_l4_a_busy_port_is_refused_and_the_first_serves_on(second: str) -> None:
    async with served(World(ScriptedRouter())) as (_, port), httpx.AsyncClient() as client:
        error = refused(TcpAddress(second, port))
        assert error.code == Code.PORT_BUSY
        assert "ss -ltnp" in error.message
        assert (await client.get(f"http://127.0.0.1:{port}/livez")).status_code == 200


async def test_a_port_taken_between_bind_and_serve_is_the_same_error() -> None:
    ours = listener(TcpAddress("127.0.0.1", 0))
    ours.bind()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port_of(ours)))
        other.listen()
        with pytest.raises(ListenError) as caught:
            await ours.serve()
    assert caught.value.code == Code.PORT_BUSY
    await ours.close(0)


async def test_a_port_is_free_again_at_once() -> None:
    async with served(World(ScriptedRouter())) as (_, port), httpx.AsyncClient() as client:
        await client.get(f"http://127.0.0.1:{port}/livez")
    again = listener(TcpAddress("127.0.0.1", port))
    again.bind()
    await again.close(0)


@pytest.mark.parametrize(
    ("host", "part"),
    [("203.0.113.9", "no interface"), ("no-such-host.invalid", "does not resolve"), ("a..b", "does not resolve")],
)
def test_an_address_that_cannot_be_had_says_why(host: str, part: str) -> None:
    error = refused(TcpAddress(host, 8000))
    assert error.code == Code.LISTENER_ADDRESS
    assert part in error.message


@pytest.mark.parametrize("host", ["::1", "::", "localhost"])
async def test_ipv6_and_names(host: str) -> None:
    ours = listener(TcpAddress(host, 0)) if host != "localhost" else listener(TcpAddress(host, free_port()))
    ours.bind()
    await ours.serve()
    hosts = {"::1": ["[::1]"], "::": ["[::1]", "127.0.0.1"], "localhost": ["127.0.0.1"]}[host]
    async with httpx.AsyncClient() as client:
        for each in hosts:
            assert (await client.get(f"http://{each}:{port_of(ours)}/livez")).status_code == 200
    await ours.close(0)
    assert str(TcpAddress("::1", 80)) == "[::1]:80"


# --- unix sockets ---------------------------------------------------------------------------------


async def get(path: Path, url: str = "/livez") -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://x") as client:
        return await client.get(url)


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


async def test_a_unix_socket_has_its_rights_and_folder_and_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run" / "deep" / "admin.sock"
    ours = listener(UnixAddress(path))
    ours.bind()
    assert names(tmp_path) == []  # only looked at until it serves
    await ours.serve()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert names(path.parent) == ["admin.sock"]
    assert (await get(path)).status_code == 200
    await ours.close(0)
    assert names(path.parent) == []


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()  # closing does not remove the path: so it looks when a daemon was killed
    assert path.is_socket()
    ours = listener(UnixAddress(path))
    ours.bind()
    await ours.serve()
    assert (await get(path)).status_code == 200
    await ours.close(0)


async def test_a_live_daemon_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    first = listener(UnixAddress(path))
    first.bind()
    second = listener(UnixAddress(path))
    second.bind()
    await first.serve()
    error = refused(UnixAddress(path))
    assert error.code == Code.ADMIN_SOCKET
    assert "another daemon answers" in error.message
    with pytest.raises(ListenError, match="another daemon answers"):
        await second.serve()  # it came since the look
    await second.close(0)
    assert (await get(path)).status_code == 200
    assert names(tmp_path) == ["admin.sock"]
    await first.close(0)


async def test_closing_leaves_a_socket_that_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    first, second = listener(UnixAddress(path)), listener(UnixAddress(path))
    first.bind()
    await first.serve()
    path.unlink()  # someone cleared /run
    second.bind()
    await second.serve()
    await first.close(0)
    assert (await get(path)).status_code == 200
    await second.close(0)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    path.write_text("precious")
    assert "no socket" in refused(UnixAddress(path)).message
    assert path.read_text() == "precious"


@contextlib.contextmanager
def no_rights() -> Iterator[None]:
    """As a user who owns nothing, where this one may become that."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_folder_that_this_user_may_not_make_is_refused_at_the_look() -> None:
    with no_rights():
        error = refused(UnixAddress(Path("/no-such-folder/admin.sock")))
    assert error.code == Code.ADMIN_SOCKET
    assert "this user may make no file in /," in error.message


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    assert "too long" in refused(UnixAddress(tmp_path / ("x" * 120))).message
    (tmp_path / "file").write_text("")
    assert refused(UnixAddress(tmp_path / "file" / "s")).code == Code.ADMIN_SOCKET


# --- the last connections ---------------------------------------------------------------------------------


async def test_a_connection_that_came_before_the_end_may_still_ask_its_first_request() -> None:
    async with served(World(ScriptedRouter())) as (one, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: one.open_connections == 1, "it is let in")
        one.stop_accepting()
        settled = asyncio.create_task(one.until_asked())
        body = b'{"model": "chat", "prompt": "Once"}'
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        await settled
        writer.write(body[:9])
        await asyncio.sleep(0)
        writer.write(body[9:])
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 ")
        assert answer.lower().count(b"connection: close") == 1
        writer.close()


async def test_one_that_asks_nothing_is_closed_when_its_time_is_over() -> None:
    async with served(World(ScriptedRouter()), ConnectionLimits(first_s=0.05)) as (one, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: one.open_connections == 1, "it is let in")
        one.stop_accepting()
        await one.until_asked()
        assert await reader.read() == b""
        writer.close()


async def test_one_that_asked_before_and_is_idle_is_closed_at_once() -> None:
    async with served(World(ScriptedRouter()), ConnectionLimits(first_s=60)) as (one, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        one.stop_accepting()
        await reader.read()
        writer.close()
