"""What a client of the load makes of what it gets, over real sockets."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import pytest
from support.ports import free_port
from torture.client import Client, Load
from torture.clock import Clock
from torture.messages import Asked, Closed, End, Open, Rest, Resting


def event(text="", finish=None):
    return b"data: " + json.dumps({"choices": [{"text": text, "finish_reason": finish}]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(*parts, is_whole=True):
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return OK + body + (b"0\r\n\r\n" if is_whole else b"")


@asynccontextmanager
async def answering(reply, arrivals=None, opened=None):
    """A server that answers every request with these bytes; its port. It puts each request into `arrivals`, if
    there is such a queue, and holds its answer back until `opened` is set."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if arrivals is not None:
            arrivals.put_nowait(None)
            await opened.wait()
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def asked(reply, *before):
    async with answering(reply) as port:
        return await Client(Clock(), (*before, port)).ask(0)


async def test_a_whole_answer():
    one = await asked(chunked(event("a"), event(), event("b") + event("", "stop"), DONE))
    assert (one.end, one.code, one.moved, len(one.tokens_at)) == (End.ANSWERED, "", 0, 2)
    assert one.sent_at <= one.tokens_at[0] <= one.tokens_at[1] <= one.ended_at
    split = chunked(event("ab")[:9], event("ab")[9:], event("", "length"), DONE)
    assert (await asked(split)).text == one.text == "ab"
    assert (await asked(chunked(event("ac"), event("", "stop"), DONE))).text == "ac"


async def test_whatever_is_not_whole_is_no_answer():
    error = b'data: {"error": {"code": "engine_died"}}\n\n'
    cut = await asked(chunked(event("a"), error))
    assert (cut.end, cut.code) == (End.CUT, "engine_died")
    assert (await asked(chunked(event("a"), is_whole=False))).end is End.CUT
    assert (await asked(chunked(event("a"), event("", "stop")))).end is End.CUT
    assert (await asked(chunked(event("a"), DONE))).end is End.CUT
    assert (await asked(chunked(error))).end is End.FAILED
    assert (await asked(b"")).end is End.FAILED
    body = b'{"error": {"code": "queue_full"}}'
    refused = await asked(b"HTTP/1.1 503 No\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    assert (refused.end, refused.code) == (End.FAILED, "503 queue_full")


async def test_a_port_that_was_left_leads_to_the_next():
    moved = await asked(chunked(event("a"), event("", "stop"), DONE), free_port())
    assert (moved.end, moved.moved) == (End.ANSWERED, 1)
    nowhere = await Client(Clock(), (free_port(),)).ask(0)
    assert (nowhere.end, nowhere.code) == (End.FAILED, "ConnectionRefusedError")


WHOLE = chunked(event("a"), event("", "stop"), DONE)


async def until_resting(said):
    """What is said up to the answer to Rest."""
    found = []
    while not isinstance(one := await said.get(), Resting):
        found.append(one)
    return found


async def test_an_open_load_waits_for_no_answer_and_rest_for_all():
    said, arrivals, opened = asyncio.Queue(), asyncio.Queue(), asyncio.Event()
    async with answering(WHOLE, arrivals, opened) as port:
        load = Load(Client(Clock(), (port,)), said.put_nowait, random.Random(1))
        load.obey(Open(rate=1000))
        for _ in range(20):
            await arrivals.get()
        load.obey(Rest())
        assert said.empty()
        opened.set()
        answered = await until_resting(said)
    assert len(answered) >= 20
    assert all(isinstance(each, Asked) and each.end is End.ANSWERED for each in answered)


async def test_a_closed_load_has_so_many_clients_and_no_more():
    said, arrivals, opened = asyncio.Queue(), asyncio.Queue(), asyncio.Event()
    async with answering(WHOLE, arrivals, opened) as port:
        load = Load(Client(Clock(), (port,)), said.put_nowait, random.Random(1))
        load.obey(Closed(clients=3))
        for _ in range(3):
            await arrivals.get()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await arrivals.get()
        opened.set()
        for _ in range(9):
            assert (await said.get()).end is End.ANSWERED
        load.obey(Rest())
        await until_resting(said)
