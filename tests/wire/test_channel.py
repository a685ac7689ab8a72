"""Both ends of a channel over real sockets."""

import asyncio
import socket

import pytest
from test_frames import SAMPLING

from halogend.wire.channel import AsyncChannel, ChannelClosedError, WorkerChannel, wait
from halogend.wire.requests import Abort, Generate


async def open_async(sock):
    got, closed = [], asyncio.get_running_loop().create_future()
    channel = await AsyncChannel.open(sock, got.append, closed.set_result)
    return channel, got, closed


async def test_messages_cross_in_both_directions_and_eof_is_told_once():
    ours, theirs = socket.socketpair()
    worker = WorkerChannel(theirs)
    channel, got, closed = await open_async(ours)
    channel.send(Abort(id=1))
    assert wait([worker], 5) == {worker}
    assert worker.receive() == [Abort(id=1)]
    worker.send(Abort(id=2))
    worker.close()
    assert await asyncio.wait_for(closed, 5) is None
    assert got == [Abort(id=2)]
    with pytest.raises(ChannelClosedError):
        channel.send(Abort(id=3))


async def test_a_worker_never_blocks_in_send_and_everything_arrives():
    ours, theirs = socket.socketpair()
    worker = WorkerChannel(theirs)
    big = Generate(id=1, prompt_ids=tuple(range(100_000)), max_tokens=1, sampling=SAMPLING, stop_ids=())
    for _ in range(20):
        worker.send(big)
    assert worker.unsent_bytes > 0
    channel, got, _ = await open_async(ours)
    while len(got) < 20:
        wait([worker], 0)
        await asyncio.sleep(0)
    assert got == [big] * 20
    assert worker.unsent_bytes == 0
    channel.close()
    worker.close()


def test_what_came_before_eof_is_received_first():
    ours, theirs = socket.socketpair()
    first, second = WorkerChannel(ours), WorkerChannel(theirs)
    first.send(Abort(id=1))
    first.close()
    assert second.receive() == [Abort(id=1)]
    with pytest.raises(ChannelClosedError):
        second.receive()
    second.close()


async def test_garbage_ends_the_channel_with_the_error():
    ours, theirs = socket.socketpair()
    _, got, closed = await open_async(ours)
    theirs.sendall(b"\xff\xff\xff\xff")
    error = await asyncio.wait_for(closed, 5)
    assert "over the limit" in str(error)
    assert got == []
    theirs.close()
