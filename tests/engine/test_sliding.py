"""Long contexts of sliding models: the memory they should take, and the tokens of transformers with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from halogen_kernels import AttentionShape, Kernels, Span, Workspace, select
from support import tiny_hf
from support.engine_driver import generate_greedy, load_engine
from support.greedy_case import clear_choices, continuations
from support.tiny_hf import TinyDir
from support.tiny_models import TinyModel, tiny_gemma3

from halogend.engine.interface import Loaded
from halogend.sched.scheduler import Scheduler

WINDOW = 16
NEW_TOKENS = 24
LENGTHS = (377, 150, 40)
DRAWN = 2  # prompts at once, of each length
LONGEST = max(LENGTHS) + NEW_TOKENS - 1  # 400 positions: the last token is never computed

MODELS: dict[str, Callable[[Path], TinyModel | TinyDir]] = {
    "gemma3": lambda path: tiny_gemma3(path / "model.gguf", seed=21, window=WINDOW),  # one of seven layers is global
    "mistral": lambda path: tiny_hf.make("mistral", path / "model", seed=1),  # none is
}
WINDOWS = {"gemma3": (None, *[WINDOW] * 6), "mistral": (WINDOW,)}


@dataclass(frozen=True)
class Case:
    name: str
    path: Path
    prompts: list[list[int]]
    expected: list[list[int]]


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A prompt of each length whose float64 continuation holds no near-tie."""
    tiny = MODELS[request.param](tmp_path_factory.mktemp("tiny"))
    reference = tiny.reference().double()
    generator = torch.Generator().manual_seed(5)
    found: dict[int, tuple[list[int], list[int]]] = {}
    while open_lengths := [length for length in LENGTHS if length not in found]:
        sizes = [(length,) for length in open_lengths for _ in range(DRAWN)]
        drawn = [torch.randint(4, tiny.vocab_size, size, generator=generator).tolist() for size in sizes]
        answers = continuations(reference, drawn, NEW_TOKENS)
        for prompt, answer, clear in zip(drawn, answers, clear_choices(reference, drawn, answers), strict=True):
            if clear:
                found[len(prompt)] = (prompt, answer)
    prompts, expected = zip(*(found[length] for length in LENGTHS), strict=True)
    return Case(request.param, tiny.path, list(prompts), list(expected))


@pytest.fixture
def engine(case: Case) -> Loaded:
    engine = load_engine(case.path)
    assert engine.layout.windows == WINDOWS[case.name]
    return engine


def seen_blocks(engine: Loaded, end: int) -> int:
    """What a sequence of `end` positions holds between two steps, by the position: a block of a table is
    held if a later position can see one of its positions that is computed."""
    held = 0
    for window in engine.layout.windows:
        oldest = 0 if window is None else max(0, end - window + 1)
        held += len({position // 16 for position in range(end) if position // 16 >= oldest // 16})
    return held


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_long_request_holds_what_its_windows_see_in_a_pool_too_small_for_all(
    case: Case, engine: Loaded, chunk: int
) -> None:
    everything = engine.layout.tables * -(-LONGEST // 16)
    pool = engine.layout.blocks_for_request(LONGEST, chunk)
    assert pool < 0.6 * everything
    outcome = generate_greedy(engine, case.prompts[:1], NEW_TOKENS, chunk=chunk, blocks=1 + pool)
    assert outcome.tokens == case.expected[:1]
    assert outcome.preemptions == 0
    prompt = LENGTHS[0]
    ends = [*range(chunk, prompt, chunk), *range(prompt, LONGEST)]
    assert outcome.blocks_held == [*(seen_blocks(engine, end) for end in ends), 0]


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_several_give_way_and_are_recomputed(case: Case, engine: Loaded, chunk: int) -> None:
    """The pool shrinks now and then to what holds the longest alone: what finds no room there gives way,
    the rest moves."""
    least = 1 + engine.layout.blocks_for_request(LONGEST, chunk)
    moved = 0

    def shrink(step: int, scheduler: Scheduler) -> None:
        nonlocal moved
        if step in (4, 8, 16, 32, 64, 128, 256):  # ever rarer: what gave way must come further
            for blocks in (least, engine.block_count):
                resized = scheduler.resize(blocks)
                assert resized.ended == ()
                engine.runner.resize_pool(blocks, resized.moves)
                moved += len(resized.moves)

    outcome = generate_greedy(engine, case.prompts, NEW_TOKENS, chunk=chunk, after_step=shrink)
    assert outcome.tokens == case.expected
    assert outcome.preemptions + moved > 1


def test_a_shrink_moves_live_blocks_down_and_changes_no_token(case: Case, engine: Loaded) -> None:
    """One that came first gives up, and whatever lies above its place moves below: at once, and at every
    step after that, as windows give blocks back."""
    least = 1 + engine.layout.blocks_for_request(LONGEST, 64)
    moved = 0

    def shrink(step: int, scheduler: Scheduler) -> None:
        nonlocal moved
        if step == 3:
            scheduler.abort(0)
        for blocks in (max(least, 1 + scheduler.stats.blocks_used), engine.block_count):
            resized = scheduler.resize(blocks)
            engine.runner.resize_pool(blocks, resized.moves)
            moved += len(resized.moves)

    prompts = [list(range(4, 84)), *case.prompts]
    outcome = generate_greedy(engine, prompts, NEW_TOKENS, chunk=64, after_step=shrink)
    assert outcome.tokens[1:] == case.expected
    assert outcome.preemptions == 0
    assert moved > 10


def test_together_with_room_for_all(case: Case, engine: Loaded) -> None:
    outcome = generate_greedy(engine, case.prompts, NEW_TOKENS, chunk=40)
    assert outcome.tokens == case.expected
    assert outcome.preemptions == 0


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("start", "count"), [(40, 1), (47, 1), (48, 1), (32, 30), (47, 2)])
def test_kernels_read_nothing_behind_the_window(backend: str, start: int, count: int) -> None:
    """An entry that is 0 there is as good as the block, whatever block 0 holds."""
    kernels = select(backend, torch.float32, flash_attention=True)
    shape = AttentionShape(heads=4, kv_heads=2, head_dim=8, scale=0.3, block_tokens=16)
    generator = torch.Generator().manual_seed(start)
    cache = torch.randn(8, 16 * shape.kv_width, generator=generator)
    queries = torch.randn(count, 4, 8, generator=generator)
    blocks = [5, 3, 6, 2, 7]
    behind = (start - WINDOW + 1) // 16
    whole = _attend(kernels, shape, queries, cache, Span(0, count, start, blocks))
    cache[0] = cache[blocks[:behind]] = float("nan")
    freed = _attend(kernels, shape, queries, cache, Span(0, count, start, [0] * behind + blocks[behind:]))
    assert behind > 0
    assert torch.equal(whole, freed)


def _attend(
    kernels: Kernels, shape: AttentionShape, queries: torch.Tensor, cache: torch.Tensor, span: Span
) -> torch.Tensor:
    plan = kernels.plan_attention(shape, [span], WINDOW, torch.float32, Workspace())
    return kernels.attend(queries, cache, plan)
