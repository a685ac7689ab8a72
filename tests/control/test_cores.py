"""Cores are shared out among the engines that serve on them, and a device's engine stays on its own."""

import asyncio
import io
import os
import socket

import pytest

from halogend.control.cores import Cores
from halogend.control.process import Host, Surroundings, reap, spawn


class Engine:
    """Stands for a generation: which cores it is held to, and how many threads it was told."""

    def __init__(self, *cores):
        self.spec = self
        self.cores = cores
        self.threads = None

    def set_threads(self, threads):
        self.threads = threads


def shared(count, *engines):
    cores = Cores(count)
    for engine in engines:
        cores.join(engine)
    return cores


def test_without_devices_of_their_own_all_share_equally():
    first, second, third = Engine(), Engine(), Engine()
    cores = shared(8, first)
    assert (first.threads, cores.share()) == (8, 4)
    cores.join(second)
    cores.join(third)
    assert [each.threads for each in (first, second, third)] == [2, 2, 2]
    cores.leave(second)
    assert [each.threads for each in (first, third)] == [4, 4]
    cores.leave(second)
    assert shared(2, *(Engine() for _ in range(5))).share() == 1


def test_engines_on_cores_of_their_own_take_nothing_from_each_other():
    one, other = Engine(0), Engine(1, 2, 3)
    cores = shared(4, one, other)
    assert (one.threads, other.threads) == (1, 3)
    assert cores.share((1, 2, 3)) == 1
    assert cores.share((0,)) == 1


def test_an_old_engine_on_all_cores_shares_with_a_new_one_on_some():
    old, new = Engine(), Engine(0, 1)
    shared(4, old, new)
    assert (old.threads, new.threads) == (3, 1)  # two to itself, half of the other two


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
async def test_a_child_and_its_threads_run_on_the_cores_it_was_given(tmp_path):
    """The thread is made when the child is told what to do, as the workers' are."""
    (tmp_path / "told.py").write_text(
        "import os, socket, sys, threading\n"
        "sock = socket.socket(fileno=int(sys.argv[sys.argv.index('--control-fd') + 1]))\n"
        "sock.recv(1)\n"
        "def tell(): sock.sendall(repr(sorted(os.sched_getaffinity(0))).encode())\n"
        "thread = threading.Thread(target=tell)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    last = max(os.sched_getaffinity(0))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    host = Host(environ=os.environ, stderr=io.BytesIO())
    around = Surroundings({**host.child_environ(1), "PYTHONPATH": str(tmp_path)}, (last,))
    child = spawn(host, "told", {"control": theirs}, around)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(ours, b"x")
    assert await loop.sock_recv(ours, 100) == f"[{last}]".encode()
    assert await reap(child, 5, 5) == 0
    ours.close()


async def test_cores_that_went_away_are_a_process_that_could_not_be_started():
    host = Host(environ=os.environ, stderr=io.BytesIO())
    ours, theirs = socket.socketpair()
    with ours, pytest.raises(OSError, match="Invalid argument"):
        spawn(host, "this", {"control": theirs}, Surroundings(host.child_environ(1), (1023,)))
