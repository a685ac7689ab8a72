"""TLS on a listener: what is spoken, a certificate that changes under open connections, plain and back."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from support.http_world import Wire, World, chat, events_of, text_of
from support.scripted_router import ScriptedRouter, deltas, finished
from support.tls_files import Pair, make_pair

from halogend.api.addresses import TcpAddress
from halogend.api.connection import ConnectionLimits
from halogend.api.listener import Listener
from halogend.control.certificates import read_certificate

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    folder = tmp_path_factory.mktemp("tls")
    return [make_pair(folder, name) for name in ("one", "two")]


def context_of(pair: Pair) -> ssl.SSLContext:
    return read_certificate(pair.config, time.time())[0].context


@asynccontextmanager
async def secured(
    world: World, context: ssl.SSLContext | None, limits: ConnectionLimits | None = None
) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(world.app, TcpAddress("127.0.0.1", 0), limits)
    listener.bind()
    assert isinstance(listener.address, TcpAddress)
    port = listener.address.port
    await listener.serve(context)
    try:
        yield listener, port
    finally:
        await listener.close(0)


@asynccontextmanager
async def wire(port: int, context: ssl.SSLContext | None, **options: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, **options)
    client = Wire(reader, writer)
    try:
        yield client
    finally:
        writer.transport.abort()


def serial(client: Wire) -> bytes | None:
    """The certificate the other end showed."""
    shown = client.writer.get_extra_info("ssl_object")
    return None if shown is None else shown.getpeercert(binary_form=True)


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())


async def test_whole_answers_and_streams(pairs: list[Pair]) -> None:
    async with (
        secured(World(ScriptedRouter()), context_of(pairs[0])) as (_, port),
        httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=pairs[0].client()) as client,
    ):
        whole = await client.post(CHAT, json=chat())
        streamed = await client.post(CHAT, json=chat(stream=True))
    assert whole.json()["choices"][0]["message"]["content"] == "Hello, wörld 😀"
    assert text_of(events_of(streamed.text)) == "Hello, wörld 😀"


async def test_a_large_answer_arrives_whole(pairs: list[Pair]) -> None:
    text = "0123456789abcdef" * (1 << 18)
    router = ScriptedRouter(script=lambda _: [*deltas(text), finished()])
    async with (
        secured(World(router), context_of(pairs[0])) as (_, port),
        httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=pairs[0].client()) as client,
    ):
        for stream in (False, True):
            answer = await client.post(CHAT, json=chat(stream=stream))
            got = text_of(events_of(answer.text)) if stream else answer.json()["choices"][0]["message"]["content"]
            assert got == text


async def test_who_does_not_trust_it_or_speaks_less_is_not_served(pairs: list[Pair]) -> None:
    async with secured(World(ScriptedRouter()), context_of(pairs[0])) as (_, port):
        with pytest.raises(ssl.SSLCertVerificationError):
            async with wire(port, pairs[1].client()):
                pass
        old = pairs[0].client()
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("DEFAULT@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with wire(port, old):
                pass
        async with wire(port, None) as plain:
            plain.writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"HTTP/" not in await plain.reader.read()


async def test_a_new_certificate_is_for_new_connections_and_a_stream_ends_where_it_began(pairs: list[Pair]) -> None:
    router = ScriptedRouter(manual=True)
    async with (
        secured(World(router), context_of(pairs[0])) as (listener, port),
        wire(port, pairs[0].client()) as running,
    ):
        running.post(CHAT, chat(stream=True))
        answer = await router.answers.get()
        answer.push(*deltas("before "))
        assert "200 ok" in await running.head()
        listener.take(await listener.open(context_of(pairs[1])))
        async with wire(port, pairs[1].client()) as fresh:
            assert serial(fresh) == der(pairs[1])
        answer.push(*deltas("after"), finished())
        body = await running.reader.readuntil(b"[DONE]\n\n")
        assert b"before " in body
        assert b"after" in body
        assert serial(running) == der(pairs[0])
        running.writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")  # and the connection goes on
        assert b"200" in await running.reader.readuntil(b'{"alive":true}')


async def test_no_connection_is_refused_while_the_certificate_changes(pairs: list[Pair]) -> None:
    contexts = [context_of(pair) for pair in pairs]
    trust = ssl.create_default_context(cafile=pairs[0].cert)
    trust.load_verify_locations(pairs[1].cert)
    async with secured(World(ScriptedRouter()), contexts[0]) as (listener, port):
        over = asyncio.Event()

        served: asyncio.Queue[None] = asyncio.Queue()

        async def knock() -> None:
            while not over.is_set():
                async with wire(port, trust) as client:
                    client.writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
                    assert "200 ok" in await client.head()
                served.put_nowait(None)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(knock())
            for turn in range(20):
                listener.take(await listener.open(contexts[turn % 2]))
                while not served.empty():
                    served.get_nowait()
                await served.get()  # some of them in each
            over.set()


@pytest.mark.parametrize("is_tls", [True, False])
async def test_a_connection_accepted_at_the_moment_of_the_change_is_served(pairs: list[Pair], is_tls: bool) -> None:
    """asyncio makes a connection of what it accepted one turn of the loop later; the change comes between."""
    loop = asyncio.get_running_loop()
    contexts = [context_of(pair) if is_tls else None for pair in pairs]
    async with secured(World(ScriptedRouter()), contexts[0]) as (listener, port):
        doors = await listener.open(contexts[1])
        doors.pause()  # the old ones accept it
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setblocking(False)
            loop.call_at(loop.time(), listener.take, doors)  # timers run behind what the selector brought
            await asyncio.sleep(0)
            options = {"ssl": pairs[0].client(), "server_hostname": "127.0.0.1"} if is_tls else {}
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection(sock=sock, **options)
                writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
                assert b"200" in await reader.readline()
            writer.transport.abort()


@pytest.mark.parametrize("to_tls", [True, False])
async def test_from_plain_to_tls_and_back_on_one_port(pairs: list[Pair], to_tls: bool) -> None:
    """Nobody idle stays on the old one; what runs ends there."""
    router = ScriptedRouter(manual=True)
    contexts = [None, context_of(pairs[0])] if to_tls else [context_of(pairs[0]), None]
    clients = [None, pairs[0].client()] if to_tls else [pairs[0].client(), None]
    async with secured(World(router), contexts[0]) as (listener, port):
        async with wire(port, clients[0]) as idle, wire(port, clients[0]) as running:
            idle.writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            await idle.reader.readuntil(b'{"alive":true}')
            running.post(CHAT, chat(stream=True))
            answer = await router.answers.get()
            answer.push(*deltas("before "))
            await running.head()
            listener.take(await listener.open(contexts[1]))
            assert await idle.reader.read() == b""
            answer.push(*deltas("after"), finished())
            body = await running.reader.read()  # to the end of the connection
            assert b"after" in body
            assert b"[DONE]" in body
        async with wire(port, clients[1]) as fresh:
            fresh.writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert "200 ok" in await fresh.head()


async def test_a13_a_client_that_reads_nothing_is_cut(pairs: list[Pair]) -> None:
    router = ScriptedRouter(manual=True)
    world = World(router)
    limits = ConnectionLimits(unread_s=0.1)
    async with (
        secured(world, context_of(pairs[0]), limits) as (listener, port),
        wire(port, pairs[0].client(), limit=1) as client,
    ):
        client.post(CHAT, chat(stream=True))
        answer = await router.answers.get()
        answer.push(*deltas(*["x" * (1 << 20)] * 40))
        async with asyncio.timeout(20):
            await answer.closed.wait()
            await listener._until_quiet()


async def test_a_client_that_reads_slowly_is_not_cut(pairs: list[Pair]) -> None:
    text = "x" * (6 << 20)
    router = ScriptedRouter(script=lambda _: [*deltas(text), finished()])
    limits = ConnectionLimits(unread_s=1.2)
    async with (
        secured(World(router), context_of(pairs[0]), limits) as (_, port),
        wire(port, pairs[0].client(), limit=1 << 16) as client,
    ):
        client.post(CHAT, chat(stream=True))
        got = b""
        while b"[DONE]" not in got[-64:]:
            piece = await client.reader.read(1 << 18)
            assert piece, "the connection was cut"
            got += piece
            if len(got) < 2 << 20:
                await asyncio.sleep(limits.unread_s / 4)  # the pace of the reader is what is tested
    assert len(got) > len(text)


async def test_leaving_closes_the_answer_at_once(pairs: list[Pair]) -> None:
    router = ScriptedRouter(manual=True)
    async with secured(World(router), context_of(pairs[0])) as (_, port):
        async with wire(port, pairs[0].client()) as client:
            client.post(CHAT, chat(stream=True))
            answer = await router.answers.get()
            answer.push(*deltas("a"))
            await client.head()
        async with asyncio.timeout(5):
            await answer.closed.wait()


async def test_a_handshake_that_never_comes_holds_nothing_up(pairs: list[Pair], tmp_path: Path) -> None:
    async with secured(World(ScriptedRouter()), context_of(pairs[0])) as (_, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        async with wire(port, pairs[0].client()) as client:
            client.writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert "200 ok" in await client.head()
        for _, writer in silent:
            writer.transport.abort()
