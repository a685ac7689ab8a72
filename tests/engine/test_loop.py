from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from support.chooser_here import ChooserHere
from support.counting_runner import NOT_A_NUMBER, POISON, VOCAB, CountingRunner, generate, make_loaded
from support.engine_client import PATIENCE_S, EngineClient, make_engine_limits, make_generate
from support.engine_driver import engine_spec

import halogend.engine.loop as loop_module
from halogend.engine.execute import EngineBrokenError
from halogend.engine.loop import Channels, EngineLoop, PeerLostError
from halogend.engine.progress import Progress
from halogend.sched.errors import InvariantError
from halogend.wire.channel import WorkerChannel, wait
from halogend.wire.control import Commit, Discard, Hello, PoolResized, Prepared, PrepareEngine, SetThreads, Stop
from halogend.wire.policy import Caller, EnginePolicy, SessionClass
from halogend.wire.requests import Abort
from halogend.wire.specs import EngineLimits
from halogend.wire.stats import EngineStats

SHORT = {"max_model_len": 64}
LARGE_POOL = {"reserve_blocks": 2048, "pool_bytes": 2048 * 64}
AHEAD = {
    "one after the other": {},
    "one ahead": {"steps_ahead": 1},
    "one ahead, chosen elsewhere": {"steps_ahead": 1, "chooser": ChooserHere(VOCAB)},
}
"""Fields of Loaded: how steps follow each other."""
ahead = pytest.mark.parametrize("more", AHEAD.values(), ids=AHEAD)


def channel_pair() -> tuple[WorkerChannel, WorkerChannel]:
    ours, theirs = socket.socketpair()
    return WorkerChannel(ours), WorkerChannel(theirs)


@dataclass
class Engine:
    """A loop in a thread of its own, at the other end of real sockets."""

    client: EngineClient
    runner: CountingRunner
    progress: Progress
    outcome: list[BaseException | None] = field(default_factory=list)
    thread: threading.Thread = field(default_factory=threading.Thread)
    now: float = 0.0

    def join(self) -> BaseException | None:
        self.thread.join(timeout=PATIENCE_S)
        assert not self.thread.is_alive()
        return self.outcome[0]


StartEngine = Callable[..., Engine]


@pytest.fixture
def start_engine() -> Iterator[StartEngine]:
    engines: list[Engine] = []

    def start(
        *,
        reserve_blocks: int = 64,
        context_tokens: int = 40_000,
        more: Mapping[str, Any] = MappingProxyType({}),
        **limits: float | EnginePolicy,
    ) -> Engine:
        wanted: EngineLimits = make_engine_limits(**limits)
        runner = CountingRunner(reserve_blocks)
        blocks = wanted.pool_bytes // runner.block_bytes
        loaded = make_loaded(runner, block_count=blocks, reserve_blocks=reserve_blocks, **more)
        floor = wanted.policy.min_pool_bytes
        spec = engine_spec(Path("unused"), limits=wanted, max_model_len=context_tokens, pool_floor_bytes=floor)
        our_control, their_control = channel_pair()
        our_data, their_data = channel_pair()
        engine = Engine(EngineClient(our_control, our_data), runner, Progress())
        channels = Channels(their_control, their_data)
        loop = EngineLoop(channels, loaded, spec, engine.progress, lambda: engine.now)

        def run() -> None:
            try:
                loop.run()
            except (PeerLostError, EngineBrokenError, InvariantError) as error:
                engine.outcome.append(error)
            else:
                engine.outcome.append(None)
            their_control.close()
            their_data.close()

        engine.thread = threading.Thread(target=run)
        engine.thread.start()
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        engine.runner.release()
        if engine.thread.is_alive():
            engine.client.control.send(Stop())
        engine.join()
        engine.client.control.close()
        engine.client.data.close()


@contextmanager
def at_once(engine: Engine) -> Iterator[None]:
    """What is sent within the block is there before the loop's next but one step, however slow we are."""
    engine.runner.hold()
    yield
    engine.runner.release()


@contextmanager
def endless(engine: Engine, id_: int) -> Iterator[None]:
    """A request that keeps the loop busy for as long as the block runs."""
    engine.client.data.send(make_generate(id_, (1,), 30_000))
    while id_ not in engine.client.tokens:
        engine.client.receive()
    yield
    engine.client.data.send(Abort(id=id_))


@ahead
def test_tokens_of_many_at_once_are_those_of_each_alone(start_engine: StartEngine, more: Mapping[str, Any]) -> None:
    engine = start_engine(more=more)
    prompts = {number: tuple((number + i) % 50 for i in range(1 + number * 9)) for number in range(12)}
    with at_once(engine):
        for number, prompt in prompts.items():
            engine.client.data.send(make_generate(number, prompt, 10))
    engine.client.until_ended(*prompts)
    assert engine.client.tokens == {number: generate(prompt, 10) for number, prompt in prompts.items()}
    assert {end.reason for end in engine.client.ended.values()} == {"length"}


def test_one_frame_a_step_for_the_whole_batch(start_engine: StartEngine) -> None:
    engine = start_engine()
    with at_once(engine):
        for number in range(8):
            engine.client.data.send(make_generate(number, (number,), 20))
    engine.client.until_ended(*range(8))
    assert len(engine.client.frames) == len(engine.runner.plans)
    assert max(len(frame.sampled) for frame in engine.client.frames) > 1


@ahead
def test_stop_ids_end_a_request(start_engine: StartEngine, more: Mapping[str, Any]) -> None:
    engine = start_engine(more=more)
    expected = generate((5, 6), 10)
    request = make_generate(1, (5, 6), 10)
    engine.client.data.send(type(request)(**{**_fields(request), "stop_ids": (expected[3],)}))
    engine.client.until_ended(1)
    assert engine.client.ended[1].reason == "stop"
    assert engine.client.tokens[1] == expected[: expected.index(expected[3]) + 1]


def _fields(message: object) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__struct_fields__}  # type: ignore[attr-defined]  # a struct


@ahead
def test_preemption_changes_no_token(start_engine: StartEngine, more: Mapping[str, Any]) -> None:
    engine = start_engine(more=more, pool_bytes=10 * 64, max_model_len=100)
    with at_once(engine):
        for number in range(4):
            engine.client.data.send(make_generate(number, (number, 3), 90))
    engine.client.until_ended(*range(4))
    assert engine.client.tokens == {number: generate((number, 3), 90) for number in range(4)}
    starts = [item for plan in engine.runner.plans for item in plan.items if item.start == 0]
    assert len(starts) > 4  # someone was recomputed


@ahead
def test_same_seed_same_tokens_alone_and_in_a_batch(start_engine: StartEngine, more: Mapping[str, Any]) -> None:
    engine = start_engine(more=more)
    engine.client.data.send(make_generate(0, (1, 2), 30, temperature=5.0, seed=7))
    engine.client.until_ended(0)
    with at_once(engine):
        for number in (1, 2, 3):
            seed = 7 if number == 2 else number
            engine.client.data.send(make_generate(number, (1, 2), 30, temperature=5.0, seed=seed))
    engine.client.until_ended(1, 2, 3)
    assert engine.client.tokens[2] == engine.client.tokens[0]
    assert engine.client.tokens[1] != engine.client.tokens[0]


@ahead
def test_an_aborted_request_is_gone_and_says_nothing_more(start_engine: StartEngine, more: Mapping[str, Any]) -> None:
    engine = start_engine(more=more, max_batch=2, **LARGE_POOL)
    with endless(engine, 1):
        engine.client.data.send(make_generate(2, (2,), 30_000))
        while 2 not in engine.client.tokens:
            engine.client.receive()
        engine.client.data.send(make_generate(3, (3,), 5))
        engine.client.data.send(Abort(id=2))
        engine.client.until_ended(3)
        assert 2 not in engine.client.ended
    engine.client.data.send(Abort(id=77))  # unknown: it may just have ended
    engine.client.data.send(make_generate(4, (4,), 5))
    engine.client.until_ended(4)


def test_refusals_come_as_ends(start_engine: StartEngine) -> None:
    engine = start_engine(max_batch=1, max_queue=0, **LARGE_POOL)
    with endless(engine, 1):
        engine.client.data.send(make_generate(2, (1,), 5))
        engine.client.data.send(make_generate(3, (1,), 100_000))
        engine.client.data.send(make_generate(4, (VOCAB,), 5))
        engine.client.data.send(make_generate(5, (), 5))
        engine.client.data.send(make_generate(6, (1,), 0))
        engine.client.until_ended(2, 3, 4, 5, 6)
    codes = {number: end.failure.code for number, end in engine.client.ended.items()}
    assert codes == {
        2: "queue_full",
        3: "kv_too_small",
        4: "bad_token",
        5: "engine_error",
        6: "engine_error",
    }
    assert all(end.reason == "error" and end.failure.message for end in engine.client.ended.values())


def test_time_limits(start_engine: StartEngine) -> None:
    engine = start_engine(max_batch=1, queue_timeout_s=5, request_timeout_s=20)
    engine.runner.hold()
    engine.client.data.send(make_generate(1, (1,), 1000))
    engine.client.data.send(make_generate(2, (1,), 5))
    engine.runner.hold(passes=2)
    while len(engine.client.tokens.get(1, ())) < 2:  # both are taken in: the third pass is held
        engine.client.receive()
    engine.now = 5.0
    engine.runner.hold(passes=2)  # the one that began before, and the one after which ends are told
    engine.client.until_ended(2)
    assert engine.client.ended[2].failure.code == "queue_timeout"
    engine.now = 20.0
    engine.runner.release()
    engine.client.until_ended(1)
    assert engine.client.ended[1].failure.code == "request_timeout"
    assert engine.client.tokens[1] == generate((1,), len(engine.client.tokens[1]))


@ahead
@pytest.mark.parametrize(("bad", "code"), [(POISON, "engine_error"), (NOT_A_NUMBER, "numeric_error")])
def test_one_failing_request_harms_no_other(
    start_engine: StartEngine, more: Mapping[str, Any], bad: int, code: str
) -> None:
    """A9: the guilty one fails alone, the others finish with the tokens they would have had."""
    engine = start_engine(more=more)
    prompts = {1: (1, 2, 3), 2: (4, bad), 3: (5, 6), 4: (7,)}
    with at_once(engine):
        for number, prompt in prompts.items():
            engine.client.data.send(make_generate(number, prompt, 30))
    engine.client.until_ended(*prompts)
    assert engine.client.ended[2].failure.code == code
    for number in (1, 3, 4):
        assert engine.client.tokens[number] == generate(prompts[number], 30)
    assert 2 not in engine.client.tokens


def test_odd_sampling_parameters_fail_their_request_alone(start_engine: StartEngine) -> None:
    engine = start_engine()
    with at_once(engine):
        engine.client.data.send(make_generate(1, (1, 2), 30))
        engine.client.data.send(make_generate(2, (3, 4), 30, temperature=float("nan")))
    engine.client.until_ended(1, 2)
    assert engine.client.ended[2].failure.code in {"engine_error", "numeric_error"}
    assert engine.client.tokens[1] == generate((1, 2), 30)


def test_an_engine_that_fails_every_time_gives_up(start_engine: StartEngine) -> None:
    engine = start_engine()
    engine.runner.broken = True
    for number in range(3):
        engine.client.data.send(make_generate(number, (number,), 30))
    assert isinstance(engine.join(), EngineBrokenError)


def test_a_failure_now_and_then_is_not_a_broken_engine(start_engine: StartEngine) -> None:
    engine = start_engine()
    for number in range(8):
        engine.client.data.send(make_generate(number, (POISON if number % 2 else 3,), 3))
        engine.client.until_ended(number)
    reasons = [engine.client.ended[number].reason for number in range(8)]
    assert reasons == ["length", "error"] * 4


def test_stop_ends_the_loop_with_work_pending(start_engine: StartEngine) -> None:
    engine = start_engine()
    engine.client.data.send(make_generate(1, (1,), 1000))
    while 1 not in engine.client.tokens:
        engine.client.receive()
    engine.client.control.send(Stop())
    assert engine.join() is None


@pytest.mark.parametrize("busy", [False, True])
def test_the_end_of_a_channel(start_engine: StartEngine, busy: bool) -> None:
    engine = start_engine()
    if busy:
        engine.client.data.send(make_generate(1, (1,), 1000))
    engine.client.data.close()
    assert isinstance(engine.join(), PeerLostError)
    engine = start_engine()
    if busy:
        engine.client.data.send(make_generate(1, (1,), 1000))
    engine.client.control.close()
    assert engine.join() is None


def test_all_told_to_stop_at_once_is_no_loss(start_engine: StartEngine) -> None:
    """The text process may be gone before the engine has read its own Stop."""
    engine = start_engine()
    engine.client.control.send(Stop())
    engine.client.data.close()
    assert engine.join() is None


def test_messages_on_the_wrong_channel_are_our_bug(start_engine: StartEngine) -> None:
    engine = start_engine()
    engine.client.data.send(Hello(version=1, role="text", pid=1))
    assert isinstance(engine.join(), InvariantError)


# --- live changes -----------------------------------------------------------------------------------


def ask(engine: Engine, update: int, **limits: float | EnginePolicy) -> Prepared:
    engine.client.control.send(PrepareEngine(update=update, limits=make_engine_limits(**limits)))
    answer = engine.client.until_told(Prepared)
    assert isinstance(answer, Prepared)
    assert answer.update == update
    return answer


def commit(engine: Engine, update: int, **limits: float | EnginePolicy) -> None:
    """Prepared, committed, and known to be in effect: control is read in order."""
    assert ask(engine, update, **limits).failure is None
    engine.client.control.send(Commit(update=update))
    assert ask(engine, update + 1000).failure is None


def test_a_smaller_batch_takes_effect_live(start_engine: StartEngine) -> None:
    engine = start_engine(max_batch=8)
    commit(engine, 1, max_batch=1)
    with at_once(engine):
        for number in range(4):
            engine.client.data.send(make_generate(number, (number,), 20))
    engine.client.until_ended(*range(4))
    assert max(len(plan.items) for plan in engine.runner.plans) == 1


def test_a_larger_batch_takes_effect_live(start_engine: StartEngine) -> None:
    engine = start_engine(max_batch=1)
    commit(engine, 1, max_batch=4)
    with at_once(engine):
        for number in range(4):
            engine.client.data.send(make_generate(number, (number,), 20))
    engine.client.until_ended(*range(4))
    assert max(len(plan.items) for plan in engine.runner.plans) == 4
    assert engine.client.tokens == {number: generate((number,), 20) for number in range(4)}


def test_what_was_prepared_and_discarded_has_no_effect(start_engine: StartEngine) -> None:
    engine = start_engine(max_batch=4)
    assert ask(engine, 1, max_batch=1).failure is None
    engine.client.control.send(Discard(update=1))
    assert ask(engine, 2).failure is None
    with at_once(engine):
        for number in range(4):
            engine.client.data.send(make_generate(number, (number,), 20))
    engine.client.until_ended(*range(4))
    assert max(len(plan.items) for plan in engine.runner.plans) == 4
    engine.client.control.send(Commit(update=1))
    assert isinstance(engine.join(), InvariantError)


def test_the_pool_shrinks_and_grows_under_running_requests(start_engine: StartEngine) -> None:
    engine = start_engine(pool_bytes=40 * 64, reserve_blocks=64, max_model_len=100)
    with at_once(engine):
        for number in range(6):
            engine.client.data.send(make_generate(number, (number, 3), 90))
        for update, blocks in enumerate((9, 64, 12), start=1):
            engine.runner.hold(passes=10)
            while len(engine.client.frames) < update * 10:
                engine.client.receive()
            limits = make_engine_limits(pool_bytes=blocks * 64, max_model_len=100)
            engine.client.control.send(PrepareEngine(update=update, limits=limits))
            engine.client.control.send(Commit(update=update))
    engine.client.until_ended(*range(6))
    assert engine.runner.pool_sizes == [9, 64, 12]
    told = [engine.client.until_told(PoolResized) for _ in range(3)]
    assert told == [
        PoolResized(update=update, pool_bytes=blocks * 64, touched_bytes=blocks * 64)
        for update, blocks in enumerate((9, 64, 12), start=1)
    ]
    assert len(engine.client.frames) > 90  # nobody had ended by then, and someone was preempted
    assert engine.client.tokens == {number: generate((number, 3), 90) for number in range(6)}


@ahead
def test_a_pool_is_resized_when_no_step_is_under_way(start_engine: StartEngine, more: Mapping[str, Any]) -> None:
    engine = start_engine(more=more, **LARGE_POOL)
    with endless(engine, 1):
        for update, blocks in enumerate((1900, 2048), start=1):
            limits = make_engine_limits(pool_bytes=blocks * 64)
            engine.client.control.send(PrepareEngine(update=update, limits=limits))
            engine.client.control.send(Commit(update=update))
            assert engine.client.until_told(PoolResized).pool_bytes == blocks * 64
    assert engine.client.tokens[1] == generate((1,), len(engine.client.tokens[1]))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"pool_bytes": 65 * 64}, "reserved at the start"),
        ({"pool_bytes": 8 * 64}, "one request of 128 tokens"),
        ({"max_model_len": 513}, "own 512 tokens"),
        ({"max_batch": 0}, "max_batch"),
    ],
)
def test_limits_that_cannot_be_taken_live(start_engine: StartEngine, limits: dict[str, float], words: str) -> None:
    engine = start_engine(reserve_blocks=64, context_tokens=512)
    failure = ask(engine, 1, **limits).failure
    assert failure.code == "HRT-1015"
    assert words in failure.message
    assert ask(engine, 2, pool_bytes=9 * 64).failure is None  # exactly one request of 128 tokens


def test_a_pool_for_the_document_s_limit_not_the_checkpoint_s(start_engine: StartEngine) -> None:
    """A model of 8192 tokens that is served with 64 needs a pool for 64; who raises that needs more."""
    engine = start_engine(context_tokens=8192, pool_bytes=5 * 64, max_model_len=64)
    commit(engine, 1, pool_bytes=5 * 64, max_model_len=64, max_batch=2)
    refused = ask(engine, 2, pool_bytes=5 * 64, max_model_len=66).failure
    assert "one request of 66 tokens" in refused.message


def test_a_pool_that_could_not_finish_what_was_accepted_is_refused(start_engine: StartEngine) -> None:
    engine = start_engine(**LARGE_POOL)
    with at_once(engine):
        engine.runner.hold(passes=1)
        engine.client.data.send(make_generate(1, (1, 2), 100))  # 7 blocks at most
        while 1 not in engine.client.tokens:
            engine.client.receive()
        engine.client.control.send(PrepareEngine(update=1, limits=make_engine_limits(pool_bytes=7 * 64, **SHORT)))
        engine.client.control.send(PrepareEngine(update=2, limits=make_engine_limits(pool_bytes=8 * 64, **SHORT)))
        engine.client.control.send(Commit(update=2))
    refused, taken = engine.client.until_told(Prepared), engine.client.until_told(Prepared)
    assert (refused.update, taken.update, taken.failure) == (1, 2, None)
    assert "accepted already" in refused.failure.message
    engine.client.until_ended(1)
    assert engine.client.tokens[1] == generate((1, 2), 100)
    assert ask(engine, 3, pool_bytes=7 * 64, **SHORT).failure is None


def test_what_would_not_fit_after_the_commit_is_not_taken_before_it(start_engine: StartEngine) -> None:
    engine = start_engine(**LARGE_POOL)
    assert ask(engine, 1, pool_bytes=7 * 64, **SHORT).failure is None
    engine.client.data.send(make_generate(1, (1, 2), 100))
    engine.client.until_ended(1)
    assert engine.client.ended[1].failure.code == "kv_too_small"
    engine.client.data.send(make_generate(2, (1, 2), 90))
    engine.client.control.send(Commit(update=1))
    engine.client.until_ended(2)
    assert engine.client.tokens == {2: generate((1, 2), 90)}
    assert ask(engine, 2, pool_bytes=64 * 64).failure is None
    engine.client.control.send(Discard(update=2))
    commit(engine, 3, pool_bytes=64 * 64)
    engine.client.data.send(make_generate(3, (1, 2), 100))
    engine.client.until_ended(3)
    assert engine.client.ended[3].reason == "length"


def test_threads_reach_the_runner(start_engine: StartEngine) -> None:
    engine = start_engine()
    engine.client.control.send(SetThreads(threads=3))
    assert ask(engine, 1).failure is None
    assert engine.runner.threads == [3]


# --- what it tells ------------------------------------------------------------------------------------


def test_stats_come_at_once_and_then_once_a_second(start_engine: StartEngine) -> None:
    engine = start_engine(max_batch=2)
    engine.now = 100.0
    engine.client.data.send(make_generate(1, tuple(range(20)), 5))
    engine.client.data.send(make_generate(2, (1,), 5))
    first = engine.client.until_told(EngineStats)
    engine.client.until_ended(1, 2)
    assert ask(engine, 1).failure is None  # it has said all it had to say by now
    assert not [message for message in engine.client.told if isinstance(message, EngineStats)]
    engine.now = 101.0
    engine.client.control.send(SetThreads(threads=1))  # wakes it
    last = engine.client.until_told(EngineStats)
    assert isinstance(first, EngineStats)
    assert isinstance(last, EngineStats)
    assert (last.running, last.waiting, last.blocks_used, last.blocks_total) == (0, 0, 0, 63)
    assert (last.prompt_tokens, last.generated_tokens) == (21, 10)
    assert last.steps == len(engine.runner.plans)
    assert len(first.step_s) + len(last.step_s) == last.steps
    assert len(first.queue_s) + len(last.queue_s) == 2
    assert {kind for kind, _ in (*first.step_s, *last.step_s)} == {"prefill", "decode"}


def test_progress_moves_with_steps_and_rests_when_idle(start_engine: StartEngine) -> None:
    engine = start_engine()
    before = engine.progress.counter
    engine.client.data.send(make_generate(1, (1,), 20))
    engine.client.until_ended(1)
    assert ask(engine, 1).failure is None
    assert engine.progress.counter == before + 20
    assert engine.progress.read().busy is False


# --- at rest ------------------------------------------------------------------------------------------


def until_idle(engine: Engine, now: float) -> None:
    """The loop has looked at the clock at `now`, with nothing to do: an answer follows a whole turn."""
    engine.now = now
    for update in (9001, 9002):
        engine.client.control.send(SetThreads(threads=1))
        assert ask(engine, update).failure is None
        engine.client.control.send(Discard(update=update))


def test_an_engine_at_rest_gives_back_what_it_does_not_need(start_engine: StartEngine) -> None:
    engine = start_engine(pool_bytes=64 * 64)
    engine.runner.pool_sizes.append(64)  # as if everything had been touched
    engine.client.data.send(make_generate(1, (1, 2), 20))
    engine.client.until_ended(1)
    until_idle(engine, 0.0)
    assert engine.runner.pool_sizes == [64]
    until_idle(engine, 60.0)
    until_idle(engine, 700.0)
    floor, limit = engine.runner.pool_sizes[-2:]
    assert (floor, limit) == (2, 64)
    engine.client.data.send(make_generate(2, (1, 2), 100))
    engine.client.until_ended(2)
    assert engine.client.tokens[2] == generate((1, 2), 100)


def test_a_pool_that_is_not_to_shrink_keeps_its_memory(start_engine: StartEngine) -> None:
    engine = start_engine(policy=EnginePolicy(autoscale=False))
    engine.runner.pool_sizes.append(64)
    until_idle(engine, 0.0)
    until_idle(engine, 700.0)
    assert engine.runner.pool_sizes == [64]


def test_a_pool_at_rest_keeps_its_least(start_engine: StartEngine) -> None:
    engine = start_engine(policy=EnginePolicy(min_pool_bytes=10 * 64))
    engine.runner.pool_sizes.append(64)
    until_idle(engine, 0.0)
    until_idle(engine, 700.0)
    assert engine.runner.pool_sizes[:3] == [64, 10, 64]
    assert min(engine.runner.pool_sizes) == 10


def test_a_least_that_is_lowered_live_is_heeded(start_engine: StartEngine) -> None:
    engine = start_engine(policy=EnginePolicy(min_pool_bytes=10 * 64))
    commit(engine, 1, policy=EnginePolicy(min_pool_bytes=5 * 64))
    engine.client.control.send(Discard(update=1001))
    engine.runner.pool_sizes.append(64)
    until_idle(engine, 0.0)
    until_idle(engine, 700.0)
    assert min(engine.runner.pool_sizes) == 5


def test_pins_that_end_while_nobody_asks_are_told_and_their_memory_goes_back(
    start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float | None] = []
    monkeypatch.setattr(loop_module, "wait", lambda ends, left_s: (timeouts.append(left_s), wait(ends, left_s))[1])
    gold = SessionClass(name="gold", priority=1, pin_quota=0.5, ttl_s=900.0)
    engine = start_engine(policy=EnginePolicy(eviction="priority_lru", classes=(gold,)))
    engine.runner.pool_sizes.append(64)  # as if everything had been touched
    request = make_generate(1, tuple(number % 50 for number in range(120)), 3)
    engine.client.data.send(type(request)(**{**_fields(request), "caller": Caller(klass="gold")}))
    engine.client.until_ended(1)
    for now in (0.0, 700.0, 702.0, 702.0):
        until_idle(engine, now)
    assert engine.runner.pool_sizes[-2:] == [8, 64]
    assert timeouts[-1] == 198.0
    engine.runner.pool_sizes.append(64)
    for now in (900.0, 902.0, 904.0, 904.0):
        until_idle(engine, now)
    assert engine.runner.pool_sizes[-2:] == [2, 64]
    assert timeouts[-1] is None
    last = [message for message in engine.client.told if isinstance(message, EngineStats)][-1]
    assert (last.blocks_used, last.blocks_pinned) == (0, 0)


def test_the_largest_gap_of_a_request_is_told_once(start_engine: StartEngine) -> None:
    engine = start_engine()
    engine.runner.hold(passes=1)
    engine.client.data.send(make_generate(1, (1,), 3))
    while 1 not in engine.client.tokens:
        engine.client.receive()
    engine.now = 0.7
    engine.runner.hold(passes=1)
    while len(engine.client.tokens[1]) < 2:
        engine.client.receive()
    engine.now = 0.9
    engine.runner.release()
    engine.client.until_ended(1)
    until_idle(engine, 5.0)
    told = [message for message in engine.client.told if isinstance(message, EngineStats)]
    assert max(stats.largest_gap_s for stats in told) == pytest.approx(0.7)
    engine.client.data.send(make_generate(2, (1,), 1))
    engine.client.until_ended(2)
    until_idle(engine, 9.0)
    last = [message for message in engine.client.told if isinstance(message, EngineStats)][-1]
    assert last.largest_gap_s == 0.0


def test_what_is_found_again_is_told_to_both_sides(start_engine: StartEngine) -> None:
    """The text process learns how much of a prompt was there already, the daemon how much in all."""
    engine = start_engine()
    prompt = tuple(number % 50 for number in range(40))
    for number in (1, 2):
        engine.client.data.send(make_generate(number, prompt, 3))
        engine.client.until_ended(number)
    assert engine.client.tokens[2] == engine.client.tokens[1] == generate(prompt, 3)
    assert [pair for frame in engine.client.frames for pair in frame.reused] == [(1, 0), (2, 32)]
    until_idle(engine, 2.0)
    last = [message for message in engine.client.told if isinstance(message, EngineStats)][-1]
    assert (last.prefix_query_tokens, last.prefix_hit_tokens) == (80, 32)
    assert (last.blocks_used, last.blocks_cached, last.blocks_pinned) == (0, 2, 0)


def test_what_a_class_pins_is_told_as_used_and_pinned(start_engine: StartEngine) -> None:
    gold = SessionClass(name="gold", priority=1, pin_quota=0.5, ttl_s=1000.0)
    engine = start_engine(policy=EnginePolicy(eviction="priority_lru", classes=(gold,)))
    request = make_generate(1, tuple(range(40)), 3)
    engine.client.data.send(type(request)(**{**_fields(request), "caller": Caller(klass="gold")}))
    engine.client.until_ended(1)
    until_idle(engine, 2.0)
    last = [message for message in engine.client.told if isinstance(message, EngineStats)][-1]
    assert (last.blocks_used, last.blocks_cached, last.blocks_pinned) == (2, 0, 2)
