"""The engine as a process: how it starts, what it says, and that it never stays behind."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from support.engine_client import PATIENCE_S, make_engine_limits, make_generate
from support.engine_driver import engine_spec, generate_greedy, load_engine
from support.engine_process import EngineProcess
from support.tiny_models import tiny_llama

from halogend.control.held import held_bytes
from halogend.engine.worker import EXIT_BUG, EXIT_PEER_LOST, EXIT_START_FAILED, EXIT_STOPPED
from halogend.wire.channel import ChannelClosedError
from halogend.wire.control import (
    Commit,
    EngineReady,
    Hello,
    PoolResized,
    PrepareEngine,
    Progress,
    SetThreads,
    StartEngine,
    StartFailed,
    Stop,
)
from halogend.wire.messages import WIRE_VERSION
from halogend.wire.process import EXIT_ORPHANED
from halogend.wire.requests import Abort
from halogend.wire.stats import EngineStats

pytestmark = pytest.mark.timeout(600)  # a process that loads, with others that want its cores

Spawn = Callable[..., EngineProcess]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    processes: list[EngineProcess] = []

    def start(**options: int | None) -> EngineProcess:
        processes.append(EngineProcess(**options))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", seed=3).path


def test_hello_comes_when_all_that_a_load_needs_is_imported(spawn: Spawn) -> None:
    """Before it, nothing but how far it is; what it says it was told is heard by nobody twice."""
    process = spawn(niceness=7)
    own, nicest = os.getpriority(os.PRIO_PROCESS, 0), 0
    while not any(isinstance(message, Hello) for message in process.client.told):
        nicest = max(nicest, *process.niceness().values())
        process.client.receive(0)
    place = next(place for place, message in enumerate(process.client.told) if isinstance(message, Hello))
    before = process.client.told[:place]
    assert process.client.told[place] == Hello(version=WIRE_VERSION, role="engine", pid=process.popen.pid)
    assert [(told.stage, told.busy) for told in before if isinstance(told, Progress)] == [("importing", True)] * place
    assert (place > 0, nicest, process.niceness()[process.popen.pid]) == (True, max(7, own), own)
    assert "libtorch_cpu" in Path(f"/proc/{process.popen.pid}/maps").read_text()
    assert not until_stage(process, "starting").busy
    assert all(file.startswith(("socket:", "pipe:", "/dev/null")) for file in process.files())
    process.client.control.send(Stop())
    assert process.wait() == EXIT_STOPPED


def test_it_loads_serves_and_stops(spawn: Spawn, tiny: Path) -> None:
    spec = engine_spec(tiny)
    process = spawn()
    ready = process.start(spec)
    assert ready.block_count * ready.block_bytes <= spec.limits.pool_bytes
    assert ready.weights_bytes > 0
    assert ready.kernels
    prompts = [[3, 4, 5], list(range(7, 47)), [9]]
    for number, prompt in enumerate(prompts):
        process.client.data.send(make_generate(number, prompt, 12))
    process.client.until_ended(0, 1, 2)
    expected = generate_greedy(load_engine(tiny), prompts, 12).tokens
    assert [process.client.tokens[number] for number in range(3)] == expected
    process.client.control.send(Stop())
    assert process.wait() == EXIT_STOPPED
    stdout, stderr = process.close()
    assert stdout == b""
    assert b"Traceback" not in stderr


def test_while_it_loads_it_yields_tells_its_progress_and_listens(spawn: Spawn, tiny: Path) -> None:
    process = spawn()
    process.client.until_told(Hello)
    own = process.niceness()[process.popen.pid]
    process.client.control.send(StartEngine(spec=engine_spec(tiny, loader_niceness=19)))
    process.client.control.send(SetThreads(threads=1))
    process.client.data.send(make_generate(1, [1, 2], 300))
    nicest = own
    while nicest < 19:  # the test's time limit is the bound
        nicest = max(nicest, *process.niceness().values())
        process.client.receive(0)
    assert process.niceness()[process.popen.pid] == own
    while not any(isinstance(m, Progress) and m.stage == "serving" and not m.busy for m in process.client.told):
        process.client.receive()
    process.client.until_ended(1)
    told = [message for message in process.client.told if isinstance(message, Progress)]
    counters = [message.counter for message in told]
    assert counters == sorted(counters)
    assert counters[-1] > counters[0]
    assert (told[0].stage, told[0].busy) == ("importing", True)


def test_one_that_was_told_at_once_and_one_that_stood_by_are_the_same_engine(spawn: Spawn, tiny: Path) -> None:
    """With as many threads as its load says, though its environment was made for another number, and whatever the
    niceness of its imports."""
    told, stood = spawn(threads=1), spawn(threads=1, niceness=19)
    start = StartEngine(spec=engine_spec(tiny, threads=2))
    told.client.control.send(start)
    told.client.until_told(EngineReady)
    assert any(isinstance(message, Hello) for message in told.client.told)
    stood.client.until_told(Hello)
    stood.client.control.send(start)
    stood.client.until_told(EngineReady)
    found = []
    for process in (told, stood):
        process.client.data.send(make_generate(1, list(range(7, 47)), 12))
        process.client.until_ended(1)
        found.append((process.client.tokens[1], sorted(process.niceness().values()), len(process.files())))
    assert found[0] == found[1]


@pytest.mark.parametrize("end", [lambda process: process.client.control.send(Stop()), EngineProcess.end_control])
def test_it_ends_in_the_middle_of_its_imports(spawn: Spawn, end: Callable[[EngineProcess], None]) -> None:
    process = spawn()
    process.client.until_told(Progress)
    end(process)
    assert process.wait() == EXIT_STOPPED
    assert b"Traceback" not in process.popen.stderr.read()
    with pytest.raises(ChannelClosedError):
        process.client.until_told(Hello)


BROKEN = {
    "torch is broken": ("raise ImportError('libtorch.so: invalid ELF header')", "HRT-1010", "invalid ELF header"),
    "memory ran out": ("raise MemoryError", "HRT-1016", "MemoryError"),
}


@pytest.mark.parametrize(("code", "failure", "named"), BROKEN.values(), ids=BROKEN)
def test_imports_that_fail_are_a_failed_start(
    spawn: Spawn, tmp_path: Path, tiny: Path, code: str, failure: str, named: str
) -> None:
    """Without a Hello, whether it was told what to load or not."""
    (tmp_path / "torch.py").write_text(code)
    for is_told in (True, False):
        process = spawn(packages=tmp_path)
        if is_told:
            process.client.control.send(StartEngine(spec=engine_spec(tiny)))
        failed = process.client.until_told(StartFailed)
        assert isinstance(failed, StartFailed)
        assert (failed.failure.code, named in failed.failure.message) == (failure, True)
        assert not any(isinstance(message, Hello) for message in process.client.told)
        process.client.control.send(Stop())
        assert process.wait() == EXIT_START_FAILED


def test_whoever_says_what_it_cannot_read_learns_its_version_first(spawn: Spawn) -> None:
    process = spawn()
    process.send_raw(len(body := msgspec.msgpack.encode({"type": "FromAnotherVersion"})).to_bytes(4, "little") + body)
    assert process.client.until_told(Hello) == Hello(version=WIRE_VERSION, role="engine", pid=process.popen.pid)
    process.end_control()
    assert process.wait() == EXIT_BUG
    assert b"FromAnotherVersion" in process.popen.stderr.read()


def until_stage(process: EngineProcess, stage: str) -> Progress:
    while True:
        told = process.client.until_told(Progress)
        if isinstance(told, Progress) and told.stage == stage:
            return told


@pytest.mark.parametrize("content", [None, b"GGUF\x03\x00\x00\x00"])
def test_a_file_that_cannot_be_loaded_is_named(spawn: Spawn, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    process = spawn()
    process.client.until_told(Hello)
    process.client.control.send(StartEngine(spec=engine_spec(path)))
    failed = process.client.until_told(StartFailed)
    assert isinstance(failed, StartFailed)
    assert failed.failure.code.startswith("HCK-")
    assert str(path) in failed.failure.message
    process.client.control.send(Stop())
    assert process.wait() == EXIT_START_FAILED


def test_a_load_that_raises_anything_else_is_a_failed_start(spawn: Spawn, tiny: Path) -> None:
    process = spawn()
    process.client.until_told(Hello)
    process.client.control.send(StartEngine(spec=engine_spec(tiny, backend="abacus")))
    failed = process.client.until_told(StartFailed)
    assert isinstance(failed, StartFailed)
    assert failed.failure.code == "HRT-1010"
    assert "abacus" in failed.failure.message
    process.client.control.close()
    assert process.wait() == EXIT_START_FAILED
    assert b"Traceback" in process.popen.stderr.read()


@pytest.mark.parametrize("loading", [False, True])
def test_stop_and_end_of_control_before_it_serves(spawn: Spawn, tiny: Path, loading: bool) -> None:
    """And at once, not when it has loaded."""
    for end in (lambda p: p.client.control.send(Stop()), EngineProcess.end_control):
        process = spawn()
        process.client.until_told(Hello)
        if loading:
            process.client.control.send(StartEngine(spec=engine_spec(tiny)))
        end(process)
        assert process.wait() == EXIT_STOPPED
        with pytest.raises(ChannelClosedError):
            process.client.until_told(EngineReady)


@pytest.mark.slow
def test_a_storm_of_requests_and_aborts_changes_no_token(spawn: Spawn, tiny: Path) -> None:
    """A pool for two full requests, forty at once, every third given up on, one seed each."""
    draw = random.Random(4)
    engine = load_engine(tiny)
    limits = make_engine_limits(max_batch=12, pool_bytes=21 * engine.block_bytes, prefill_chunk_tokens=7)
    process = spawn()
    process.start(engine_spec(tiny, limits=limits, max_model_len=160))
    prompts = [[draw.randrange(5, 200) for _ in range(draw.randint(1, 90))] for _ in range(40)]
    with process.stopped():
        for number, prompt in enumerate(prompts):
            process.client.data.send(make_generate(number, prompt, 60))
    given_up = set(range(0, 40, 3))
    for number in sorted(given_up, key=lambda number: draw.random()):
        process.client.receive()
        process.client.data.send(Abort(id=number))
    process.client.until_ended(*(set(range(40)) - given_up))
    expected = generate_greedy(engine, prompts, 60).tokens
    for number, tokens in process.client.tokens.items():
        assert tokens == expected[number][: len(tokens)]
        assert number in given_up or len(tokens) == 60
    stats = process.client.until_told(EngineStats)
    while stats.running or stats.waiting:
        stats = process.client.until_told(EngineStats)
    assert stats.blocks_used == 0
    assert stats.preemptions > 0


def test_a_pool_starts_at_its_floor_grows_with_use_and_gives_back_what_it_confirms(spawn: Spawn, tiny: Path) -> None:
    process, block_bytes = spawn(), load_engine(tiny).block_bytes
    blocks = {"floor": 2048, "limit": 8192, "least": 64}
    limits = make_engine_limits(pool_bytes=blocks["limit"] * block_bytes, max_batch=64)
    ready = process.start(engine_spec(tiny, limits=limits, pool_floor_bytes=blocks["floor"] * block_bytes))
    assert (ready.block_count, ready.pool_touched_bytes) == (blocks["limit"], blocks["floor"] * block_bytes)
    before = held_bytes([process.popen.pid])[process.popen.pid]
    smaller = make_engine_limits(pool_bytes=blocks["least"] * block_bytes, max_batch=64)
    process.client.control.send(PrepareEngine(update=7, limits=smaller))
    process.client.control.send(Commit(update=7))
    told = process.client.until_told(PoolResized)
    size = blocks["least"] * block_bytes
    assert told == PoolResized(update=7, pool_bytes=size, touched_bytes=size)
    returned = before - held_bytes([process.popen.pid])[process.popen.pid]
    assert abs(returned - (blocks["floor"] - blocks["least"]) * block_bytes) < 2 << 20


def test_end_of_control_while_it_computes(spawn: Spawn, tiny: Path) -> None:
    process = spawn()
    process.start(engine_spec(tiny))
    process.client.data.send(make_generate(1, [1, 2], 500))
    while 1 not in process.client.tokens:
        process.client.receive()
    process.client.control.close()
    assert process.wait() == EXIT_STOPPED


def test_end_of_data_is_the_death_of_the_text_process(spawn: Spawn, tiny: Path) -> None:
    process = spawn()
    process.start(engine_spec(tiny))
    process.client.data.close()
    assert process.wait() == EXIT_PEER_LOST


def test_kill_is_seen_at_the_other_ends_at_once(spawn: Spawn, tiny: Path) -> None:
    process = spawn()
    process.start(engine_spec(tiny))
    process.client.data.send(make_generate(1, [1, 2], 500))
    while 1 not in process.client.tokens:
        process.client.receive()
    process.popen.kill()
    with pytest.raises(ChannelClosedError):
        process.client.until_ended(2)
    assert process.wait() == -signal.SIGKILL


def test_a_wrong_first_message_is_a_bug_that_shows(spawn: Spawn) -> None:
    process = spawn()
    process.client.control.send(SetThreads(threads=1))
    assert process.wait() == EXIT_BUG
    assert b"InvariantError" in process.popen.stderr.read()


def test_an_orphan_from_the_start_exits(spawn: Spawn) -> None:
    assert spawn(parent_pid=1).wait() == EXIT_ORPHANED


_PARENT = """
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-P", "-m", "halogend.engine", "--control-fd", sys.argv[1], "--data-fd", sys.argv[2],
     "--parent-pid", str(os.getpid())],
    pass_fds=(int(sys.argv[1]), int(sys.argv[2])),
)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_its_parent_although_its_channels_stay_open() -> None:
    ours, theirs = socket.socketpair()
    data, their_data = socket.socketpair()
    fds = (theirs.fileno(), their_data.fileno())
    with (
        ours,
        theirs,
        data,
        their_data,
        subprocess.Popen(
            [sys.executable, "-c", _PARENT, *map(str, fds)],
            pass_fds=fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as parent,
    ):
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        ours.settimeout(PATIENCE_S)
        assert ours.recv(1)  # its first word: the parent-death signal is set by now
        parent.kill()
        assert _ended_within(pidfd, PATIENCE_S)
        os.close(pidfd)


def _ended_within(pidfd: int, seconds: float) -> bool:
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
