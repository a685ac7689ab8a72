"""What is reused changes no token: with it and without, preempted, pinned, copied and moved (float32)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.engine_driver import load_engine
from support.greedy_case import NEAR_TIE, clear_choices, continuations
from support.sampling_reference import make_sampling
from support.served import GREEDY, Served
from support.tiny_models import TinyModel, tiny_gemma3, tiny_llama

from halogend.engine.interface import Loaded, Runner
from halogend.sched.limits import EvictionPolicy, SessionClass
from halogend.sched.request import Caller
from halogend.sched.step import StepPlan
from halogend.wire.requests import Sampling

ANSWER = 24
SYSTEM = 70  # tokens that every conversation begins with
TURNS = 3
TALKS = 4
MODELS: dict[str, Callable[[Path], TinyModel]] = {
    "llama": lambda path: tiny_llama(path, seed=1),  # one table, of everything
    "gemma3": lambda path: tiny_gemma3(path, seed=4, window=16),  # a table of everything and six that slide
}
GOLD = EvictionPolicy("priority_lru", (SessionClass("gold", 10, 0.3, 1e6),))


@dataclass(frozen=True)
class Talk:
    """A conversation: each turn's prompt begins with the one before and its answer."""

    prompts: list[list[int]]
    answers: list[list[int]]


@dataclass(frozen=True)
class Case:
    path: Path
    talks: list[Talk]


def grow(talks: int, draw: Callable[[int], list[int]], answer: Callable[[list[int]], list[int] | None]) -> list[Talk]:
    """Conversations that begin alike. `answer` says None where a choice is close: then the prompt ends otherwise.
    The second prompt of each ends with a full block."""
    system = draw(SYSTEM)
    grown = [Talk([], []) for _ in range(talks)]
    for turn, (number, talk) in itertools.product(range(TURNS), enumerate(grown)):
        known = [*talk.prompts[-1], *talk.answers[-1]] if turn else system
        length = len(known) + 5 + number
        own = (-length % 16 if turn == 1 else 0) + 5 + number
        tokens = None
        while tokens is None:
            prompt = [*known, *draw(own)]
            tokens = answer(prompt)
        talk.prompts.append(prompt)
        talk.answers.append(tokens)
    assert {len(talk.prompts[1]) % 16 for talk in grown} == {0}
    return grown


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Conversations whose float64 answers hold no near-tie."""
    tiny = MODELS[request.param](tmp_path_factory.mktemp("tiny") / "model.gguf")
    reference = tiny.reference().double().eval()
    generator = torch.Generator().manual_seed(11)

    def draw(count: int) -> list[int]:
        return torch.randint(4, tiny.vocab_size, (count,), generator=generator).tolist()

    def answer(prompt: list[int]) -> list[int] | None:
        answers = continuations(reference, [prompt], ANSWER)
        return answers[0] if all(clear_choices(reference, [prompt], answers)) else None

    return Case(tiny.path, grow(TALKS, draw, answer))


@pytest.fixture(scope="module")
def engine(case: Case) -> Loaded:
    return load_engine(case.path)


def id_of(talk: int, turn: int, again: int = 0) -> int:
    return (talk * TURNS + turn) * 2 + again


def caller_of(talk: int, turn: int, mode: Mode) -> Caller:
    if not mode.reuse:
        return Caller(scope=bytes([talk, turn]))
    return Caller(scope=b"all", klass="gold" if mode.pinned and talk == 0 else "", session=f"talk-{talk}")


def tight(case: Case, engine: Loaded, talks: int) -> int:
    """Blocks that hold so many of the longest conversations at once."""
    longest = max(len(talk.prompts[-1]) + ANSWER for talk in case.talks)
    return 1 + talks * engine.layout.blocks_for_request(longest, 256)


@dataclass(frozen=True)
class Mode:
    reuse: bool
    roomy: bool
    pinned: bool = False


MODES = {
    "reuse": Mode(reuse=True, roomy=True),
    "reuse in a tight pool": Mode(reuse=True, roomy=False),
    "reuse beside pins": Mode(reuse=True, roomy=False, pinned=True),
    "afresh in a tight pool": Mode(reuse=False, roomy=False),
}


def least(case: Case, engine: Loaded, requests: int) -> int:
    """Blocks that hold so many first turns with long answers, computed in small chunks."""
    tokens = max(len(talk.prompts[0]) for talk in case.talks) + 2 * ANSWER
    return 1 + requests * engine.layout.blocks_for_request(tokens, 16)


@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_the_same_whatever_is_reused(case: Case, engine: Loaded, mode: str) -> None:
    """K5."""
    converse(case, engine, MODES[mode])


def converse(case: Case, engine: Loaded, mode: Mode) -> None:
    """All conversations side by side, turn by turn, the second turn asked twice: its prompt is whole blocks."""
    served = Served(
        engine,
        blocks=None if mode.roomy else tight(case, engine, 2),
        eviction=GOLD if mode.pinned else EvictionPolicy(),
        watermarks=None,
    )
    for turn in range(TURNS):
        for again in range(1 + (turn == 1)):
            for number, talk in enumerate(case.talks):
                caller = caller_of(number, turn, mode)
                served.add(id_of(number, turn, again), talk.prompts[turn], ANSWER, caller=caller)
            served.run()
    for number, talk in enumerate(case.talks):
        for turn, answer in enumerate(talk.answers):
            assert served.tokens[id_of(number, turn)] == answer
        assert served.tokens[id_of(number, 1, 1)] == talk.answers[1]
    found = {id_ for id_, tokens in served.reused.items() if tokens}
    if not mode.reuse:
        # A turn that is asked again is the same caller's.
        assert found <= {id_of(number, 1, 1) for number in range(TALKS)}
    elif mode.roomy:
        assert found >= {id_of(number, turn) for number in range(TALKS) for turn in range(1, TURNS)}
        assert served.copies >= TALKS
    else:
        assert found
    if mode.pinned:
        assert served.pool.referenced_count > 0


def test_preempted_requests_find_their_own_again(case: Case, engine: Loaded) -> None:
    """The pool shrinks to what one and a half need, and grows back: whoever gave way and comes back says what it
    would have said."""
    served = Served(engine, watermarks=None, min_free_ratio=0.0, prefill_chunk_tokens=16)
    for number, talk in enumerate(case.talks):
        served.add(number, talk.prompts[0], 2 * ANSWER, caller=Caller(scope=bytes([number])))
    for _ in range(3):
        served.run(steps=6)
        served.resize(least(case, engine, 3) // 2)
        served.run(steps=3)
        served.resize(engine.block_count)
    served.run()
    assert served.scheduler.stats.preemptions > 2
    for number, talk in enumerate(case.talks):
        assert served.tokens[number][:ANSWER] == talk.answers[0]


def test_a_pool_that_shrinks_and_grows_keeps_what_it_can_reuse(case: Case, engine: Loaded) -> None:
    served = Served(engine, watermarks=None)
    moved = 0
    for turn in range(TURNS):
        for number, talk in enumerate(case.talks):
            served.add(id_of(number, turn), talk.prompts[turn], ANSWER)
        for _ in range(4):
            served.run(steps=5)
            held = served.pool.referenced_count + served.pool.cached_count
            moved += served.resize(max(tight(case, engine, 1), 1 + held * 3 // 4))
            served.resize(engine.block_count)
        served.run()
    assert moved > 0
    assert sum(served.reused.values()) > 0
    for number, talk in enumerate(case.talks):
        for turn, answer in enumerate(talk.answers):
            assert served.tokens[id_of(number, turn)] == answer


# --- the real models --------------------------------------------------------------------------------------


class GapRunner:
    """The engine's runner; `gap` is the least distance of the first two logits of all rows so far."""

    def __init__(self, runner: Runner) -> None:
        self.gap = float("inf")
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
        logits = self._runner.forward(plan, slot_tokens)
        if len(logits):
            first_two = logits.topk(2).values
            self.gap = min(self.gap, (first_two[:, 0] - first_two[:, 1]).min().item())
        return logits


@pytest.fixture(scope="module", params=["smollm2", "gemma"])
def real_case(request: pytest.FixtureRequest) -> tuple[Case, Loaded]:
    """Conversations whose answers, each alone and afresh, hold no near-tie."""
    path: Path = request.getfixturevalue(request.param)
    engine = load_engine(path, pool_bytes=256 << 20, threads=2)
    engine.runner.set_threads(2)
    generator = torch.Generator().manual_seed(11)
    runner = GapRunner(engine.runner)
    watched = replace(engine, runner=runner)

    def draw(count: int) -> list[int]:
        return torch.randint(300, 40_000, (count,), generator=generator).tolist()

    def answer(prompt: list[int]) -> list[int] | None:
        runner.gap = float("inf")
        served = Served(watched)
        served.add(0, prompt, ANSWER)
        served.run()
        return served.tokens[0] if runner.gap >= NEAR_TIE else None

    return Case(path, grow(TALKS, draw, answer)), engine


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("mode", MODES)
def test_tokens_of_the_real_models(real_case: tuple[Case, Loaded], mode: str) -> None:
    """K5, with all that a real model's numbers are."""
    converse(*real_case, MODES[mode])


# --- K10 ------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[Sampling, int]] = {
    "greedy": (GREEDY, 5),
    "sampled": (make_sampling(temperature=1.5, seed=3), 5),
    "penalised": (make_sampling(temperature=0, repetition_penalty=1.8, presence_penalty=1.0, frequency_penalty=0.7), 5),
    "narrow": (make_sampling(temperature=2.0, top_k=5, top_p=0.7, min_p=0.05, seed=9), 5),
}


def test_every_order_of_kinds_equals_a_fresh_run(case: Case, engine: Loaded) -> None:
    """K10. The same slots, blocks and cached prefixes serve one kind after the other, and one that is given up."""
    prompts = {name: case.talks[number].prompts[0] for number, name in enumerate(KINDS)}

    def add(served: Served, id_: int, name: str) -> None:
        sampling, count = KINDS[name]
        served.add(id_, prompts[name], count, sampling=sampling)

    fresh: dict[str, list[int]] = {}
    for name in KINDS:
        served = Served(engine)
        add(served, 0, name)
        served.run()
        fresh[name] = served.tokens[0]
    assert len({tuple(tokens) for tokens in fresh.values()}) == len(KINDS)
    served = Served(engine, max_batch=1 if engine.layout.tables == 1 else 2)
    for round_, order in enumerate(itertools.permutations(KINDS)):
        ids = {name: 10 * round_ + number for number, name in enumerate(order)}
        for name, id_ in ids.items():
            add(served, id_, name)
        served.add(10 * round_ + 9, prompts[order[0]][:40], 50, sampling=KINDS[order[-1]][0])
        served.run(steps=4)
        served.abort(10 * round_ + 9)
        served.run()
        assert {name: served.tokens[id_] for name, id_ in ids.items()} == fresh, order


# --- A1 -------------------------------------------------------------------------------------------------


def held_by_others(served: Served, id_: int) -> set[int]:
    """Blocks that anybody but this request holds."""
    others = (sequence for sequence in served.scheduler._running if sequence.request.id != id_)
    return {block for sequence in others for table in sequence.blocks for block in table if block}


@pytest.mark.parametrize("where", ["queued", "in prefill", "decoding", "sharing", "preempted"])
def test_an_abort_frees_blocks_at_once_wherever_the_request_is(case: Case, engine: Loaded, where: str) -> None:
    """A1."""
    prompt, other = case.talks[0].prompts[0], case.talks[1].prompts[0]
    max_batch = 1 if where == "queued" else 3
    served = Served(engine, max_batch=max_batch, prefill_chunk_tokens=16, watermarks=None)
    served.add(0, other, 2 * ANSWER, caller=Caller(scope=b"other"))
    if where == "sharing":
        served.add(2, prompt, 2 * ANSWER)
    served.run(steps=len(other) // 16 + 3)
    served.add(1, prompt, 2 * ANSWER)
    served.run(steps=len(prompt) // 16 + 3 if where in ("decoding", "preempted") else 2)
    assert bool(served.tokens[1]) == (where in ("decoding", "preempted", "sharing"))
    if where == "preempted":
        served.resize(least(case, engine, 1))
        assert served.scheduler.stats.waiting == 1
    others = held_by_others(served, 1)
    assert (served.pool.referenced_count > len(others)) == (where not in ("queued", "preempted"))
    served.abort(1)
    assert served.pool.referenced_count == len(others)
    served.run()
    assert served.tokens[0][:ANSWER] == case.talks[1].answers[0]
    assert served.pool.referenced_count == 0
