"""Streams over a real socket: leaving, reading slowly, silence, draining."""

import asyncio
import socket
from pathlib import Path

import pytest
from support.http_world import ROUTES, World, chat, events_of, post, served, text_of, wire
from support.scripted_router import ScriptedRouter, deltas, finished

from halogend.api.addresses import TcpAddress, UnixAddress
from halogend.api.connection import ConnectionLimits
from halogend.api.listener import Listener
from halogend.api.services import Patience
from halogend.wire.requests import Accepted

CHAT = "/v1/chat/completions"


async def chunked(reader: asyncio.StreamReader) -> bytes:
    """A chunked body to its end."""
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(5):
        await event.wait()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [True, False])
async def test_a1_leaving_closes_the_answer_at_once(path: str, stream: bool) -> None:
    router = ScriptedRouter(manual=True)
    world = World(router)
    async with served(world) as (_, port):
        async with wire(port) as client:
            client.post(path, ROUTES[path](stream=stream))
            answer = await router.answers.get()
            answer.push(*deltas("a", "b"))
            if stream:
                assert "200 ok" in await client.head()
            assert not answer.closed.is_set()
        await soon(answer.closed)
    assert world.sample("requests_total", model="chat", outcome="cancelled") == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a1_leaving_while_nothing_serves_gives_the_place_up(stream: bool) -> None:
    router = ScriptedRouter(gate=asyncio.Event())
    async with served(World(router)) as (_, port):
        async with wire(port) as client:
            client.post(CHAT, chat(stream=stream))
            await router.submitting.wait()
        await soon(router.abandoned)


async def test_leaving_is_seen_behind_a_pipelined_request() -> None:
    router = ScriptedRouter(manual=True)
    async with served(World(router)) as (_, port):
        async with wire(port) as client:
            client.post(CHAT, chat())
            client.post(CHAT, chat())
            answer = await router.answers.get()
        await soon(answer.closed)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        client.post(CHAT, chat())
        client.post("/v1/completions", {"model": "chat", "prompt": "x"})
        for kind in (b"chat.completion", b"text_completion"):
            assert kind in await client.body(await client.head())


async def test_a5_a_silent_stream_gets_comments() -> None:
    router = ScriptedRouter(manual=True)
    async with served(World(router, Patience(keep_alive_s=0.01))) as (_, port), wire(port) as client:
        client.post(CHAT, chat(stream=True))
        answer = await router.answers.get()
        assert "200 ok" in await client.head()  # though there is no token yet
        for _ in range(3):
            assert b": keep-alive" in await client.reader.readuntil(b": keep-alive\n\n\r\n")
        answer.push(*deltas("late"), finished())
        body = (await chunked(client.reader)).decode()
    assert text_of(events_of(body[body.index("data: ") :])) == "late"


@pytest.mark.parametrize("path", ROUTES)
async def test_text_is_written_as_it_comes_and_in_the_same_bytes(path: str) -> None:
    """What is there before the stream is open goes one way, what comes then the other."""
    bodies = []
    for _ in range(2):
        router = ScriptedRouter(manual=bool(bodies))
        router.script = lambda _: [*deltas("a", "\u2028b", "", "c"), finished()]
        async with served(World(router)) as (_, port), wire(port) as client:
            client.post(path, ROUTES[path](stream=True, stream_options={"include_usage": True}))
            answer = await router.answers.get()
            if router.manual:
                answer.push(*deltas("a"))
            assert "200 ok" in await client.head()
            if router.manual:
                await soon(answer.is_tapped)
                answer.push(*deltas("\u2028b", "", "c"))
                assert len(answer.tapped) == 3
                answer.push(finished())
            bodies.append(await chunked(client.reader))
    assert bodies[0] == bodies[1]
    assert text_of(events_of(bodies[0].decode())) == "a\u2028bc"


async def test_text_keeps_its_order_when_the_client_takes_it_slowly() -> None:
    router = ScriptedRouter(manual=True)
    world = World(router)
    texts = [f"{number} {'x' * 5000};" for number in range(2000)]
    async with served(world) as (listener, port), wire(port, limit=1 << 20) as client:
        client.post(CHAT, chat(stream=True))
        answer = await router.answers.get()
        answer.push(*deltas(texts[0]))
        assert "200 ok" in await client.head()
        for text in texts[1:]:
            answer.push(*deltas(text))
            await asyncio.sleep(0)
        (connection,) = listener._all()
        assert connection.flow.write_paused
        assert 0 < len(answer.tapped) < len(texts) - 1
        reading = asyncio.create_task(chunked(client.reader))
        await connection.flow.drain()
        answer.push(*deltas("last"), finished())
        body = (await reading).decode()
    assert text_of(events_of(body)) == "".join(texts) + "last"
    assert world.sample("inter_token_seconds_count", model="chat") == len(texts)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_without_chunks_gets_the_same_text(version: str) -> None:
    router = ScriptedRouter(manual=True)
    async with served(World(router)) as (_, port), wire(port) as client:
        client.writer.write(post(CHAT, chat(stream=True)).replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
        answer = await router.answers.get()
        answer.push(*deltas("a"))
        head = await client.head()
        await soon(answer.is_tapped)
        answer.push(*deltas("b"), finished())
        is_chunked = version == "1.1"
        assert ("transfer-encoding: chunked" in head) is is_chunked
        assert bool(answer.tapped) is is_chunked
        body = await (chunked(client.reader) if is_chunked else client.reader.read())
    assert text_of(events_of(body.decode())) == "ab"


async def test_no_comment_while_tokens_come() -> None:
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        client.post(CHAT, chat(stream=True))
        await client.head()
        assert b": keep-alive" not in await chunked(client.reader)


def flood(router: ScriptedRouter) -> None:
    router.script = lambda _: [*deltas(*["x" * 4096] * 4000), finished()]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reader_that_takes_nothing_is_cut(stream: bool) -> None:
    router = ScriptedRouter()
    flood(router)
    world = World(router)
    async with served(world, ConnectionLimits(unread_s=0.1)) as (listener, port), wire(port, limit=1) as client:
        client.post(CHAT, chat(stream=stream))
        answer = await router.answers.get()
        await soon(answer.closed)
        async with asyncio.timeout(5):
            await listener._until_quiet()
    outcome = "cancelled" if stream else "stop"  # a whole answer was complete before it was written
    assert world.sample("requests_total", model="chat", outcome=outcome) == 1


async def test_a_reader_that_is_slow_but_reads_is_not_cut(tmp_path: Path) -> None:
    """It takes less than would make room for us in the kernel's queue, and yet it reads."""
    router = ScriptedRouter()
    flood(router)
    limits = ConnectionLimits(unread_s=1.2)
    listener = Listener(World(router).app, UnixAddress(tmp_path / "s"), limits)
    listener.bind()
    await listener.serve()
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, str(tmp_path / "s"))
        await loop.sock_sendall(sock, post(CHAT, chat(stream=True)))
        await router.answers.get()
        (connection,) = listener._all()
        for _ in range(6):
            await asyncio.sleep(limits.unread_s / 4)  # the pace of the reader is what is tested
            assert await loop.sock_recv(sock, 4096)
        assert connection.flow.write_paused
        assert not connection.transport.is_closing()
    await listener.close(0)


async def test_unread_bytes_stay_with_the_kernel() -> None:
    """A stuck reader holds no more of the daemon's memory than one event."""
    router = ScriptedRouter()
    flood(router)
    async with served(World(router)) as (listener, port), wire(port, limit=1) as client:
        client.post(CHAT, chat(stream=True))
        await router.answers.get()
        (connection,) = listener._all()
        async with asyncio.timeout(5):
            while not connection.flow.write_paused:  # noqa: ASYNC110  # uvicorn's flag is no event
                await asyncio.sleep(0)
        assert connection.transport.get_write_buffer_size() < 8192


async def test_two_requests_on_one_connection() -> None:
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        for _ in range(2):
            client.post(CHAT, chat(stream=True))
            head = await client.head()
            assert "connection: close" not in head
            assert "date: " in head
            assert b"[DONE]" in await chunked(client.reader)


async def test_a_body_too_large_leaves_the_connection_sane() -> None:
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        client.writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 12000000\r\n\r\n")
        head = await client.head()  # answered before the body was sent
        assert "413" in head.splitlines()[0]
        await client.body(head)
        client.writer.write(b" " * 12_000_000)
        client.post(CHAT, chat())
        assert "200" in (await client.head()).splitlines()[0]


async def test_a_chunked_body_too_large_leaves_the_connection_sane() -> None:
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        client.writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(12):
            client.writer.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        client.writer.write(b"0\r\n\r\n")
        head = await client.head()
        assert "413" in head.splitlines()[0]
        await client.body(head)
        client.post(CHAT, chat())
        assert "200" in (await client.head()).splitlines()[0]


async def test_a_body_that_stops_coming_is_a_408() -> None:
    world = World(ScriptedRouter(), Patience(body_s=0.01))
    async with served(world) as (_, port), wire(port) as client:
        client.writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
        head = await client.head()
        assert "408" in head.splitlines()[0]
        assert b"body_timeout" in await client.body(head)


async def test_a_client_that_waits_for_100_continue_gets_it_unless_refused() -> None:
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99000000\r\n\r\n"
        )
        assert "413" in (await client.head()).splitlines()[0]
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
        )
        assert "100" in (await client.head()).splitlines()[0]
        client.writer.write(b"{}")
        assert "400" in (await client.head()).splitlines()[0]


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000, b"GET  /\r\n\r\n"]
)
async def test_what_is_not_http_gets_a_typed_400(junk: bytes) -> None:
    async with served(World(ScriptedRouter())) as (_, port), wire(port) as client:
        client.writer.write(junk)
        head = await client.head()
        assert "400" in head.splitlines()[0]
        assert b'"bad_http"' in await client.body(head)
        assert await client.reader.read() == b""


async def test_junk_in_the_middle_of_an_answer_cuts_it() -> None:
    router = ScriptedRouter(manual=True)
    async with served(World(router)) as (_, port), wire(port) as client:
        client.writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
        assert "400" in (await client.head()).splitlines()[0]
    assert router.answers.empty()


async def test_a_head_that_never_ends_is_cut() -> None:
    limits = ConnectionLimits(head_s=0.02)
    async with served(World(ScriptedRouter()), limits) as (_, port), wire(port) as client:
        client.writer.write(b"GET /livez HTTP/1.1\r\n")
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""


# --- draining -----------------------------------------------------------------------------------


async def test_s9_stop_accepting_lets_running_answers_end() -> None:
    router = ScriptedRouter(manual=True)
    async with served(World(router)) as (listener, port), wire(port) as idle, wire(port) as busy, wire(port) as early:
        idle.writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        await idle.body(await idle.head())
        busy.post(CHAT, chat(stream=True))
        running = await router.answers.get()
        running.push(*deltas("a"))
        await busy.head()
        early.post(CHAT, chat())
        unstarted = await router.answers.get()

        listener.stop_accepting()
        assert await idle.reader.read() == b""  # idle connections close
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        running.push(*deltas("b"), finished())
        unstarted.push(*deltas("c"), finished())
        assert text_of(events_of((await chunked(busy.reader)).decode())) == "ab"
        assert await busy.reader.read() == b""
        head = await early.head()
        assert "connection: close" in head
        assert b'"c"' in await early.body(head)
        async with asyncio.timeout(5):
            await listener.close(60)
    assert listener.open_connections == 0


async def test_close_cuts_what_outlives_its_deadline() -> None:
    router = ScriptedRouter(manual=True)
    async with served(World(router)) as (listener, port), wire(port) as client:
        client.post(CHAT, chat(stream=True))
        answer = await router.answers.get()
        async with asyncio.timeout(5):
            await listener.close(0.01)
        assert answer.closed.is_set()
        assert listener.open_connections == 0


async def test_close_and_stop_may_be_called_at_any_time(unused: Listener) -> None:
    unused.stop_accepting()
    await unused.close(0)
    unused.bind()
    await unused.close(0)
    await unused.close(0)


@pytest.fixture
def unused() -> Listener:
    return Listener(World(ScriptedRouter()).app, TcpAddress("127.0.0.1", 0))


async def test_lines_are_lines_to_clients_that_cut_at_other_characters_too() -> None:
    """httpx's iter_lines cuts as str.splitlines does."""
    words = "a\u0085b\u2028c\u2029d\x1ce\x0bé"
    router = ScriptedRouter(lambda _: [Accepted(id=1, prompt_tokens=5), *deltas(words), finished()])
    async with World(router).client() as client:
        answer = await client.post(CHAT, json=chat(stream=True))
    lines = [line for line in answer.text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert text_of(events_of(answer.text)) == words
    assert "é" in answer.text
