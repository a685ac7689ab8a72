"""Greedy tokens of the float32 engine equal those of transformers, however the work is cut up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import greedy_case
from support.engine_driver import generate_greedy, load_engine
from support.greedy_case import NEW_TOKENS, PROMPTS
from support.tiny_models import TinyModel, tiny_gemma3, tiny_llama

from halogend.engine.interface import Loaded

WINDOW = 16

MODELS: dict[str, Callable[[Path], TinyModel]] = {
    "llama": lambda path: tiny_llama(path, seed=1),
    "llama-untied-mha": lambda path: tiny_llama(path, seed=2, tied=False, kv_heads=4),
    "llama-long-rope": lambda path: tiny_llama(path, seed=3, long_rope=True),
    "gemma3": lambda path: tiny_gemma3(path, seed=4, window=WINDOW),
    "gemma3-gqa": lambda path: tiny_gemma3(path, seed=5, window=WINDOW, hidden=96, heads=6, kv_heads=2, head_dim=24),
}


@dataclass(frozen=True)
class Case:
    tiny: TinyModel
    prompts: list[list[int]]
    expected: list[list[int]]


def make_case(tiny: TinyModel) -> Case:
    made = greedy_case.make_case(tiny)
    return Case(tiny, made.prompts, made.expected)


@pytest.fixture(
    scope="module",
    params=[name if name in ("llama", "gemma3") else pytest.param(name, marks=pytest.mark.slow) for name in MODELS],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    tiny = MODELS[request.param](tmp_path_factory.mktemp("tiny") / "model.gguf")
    return make_case(tiny)


@pytest.fixture
def engine(case: Case) -> Iterator[Loaded]:
    return load_engine(case.tiny.path)


def test_tokens_differ_between_prompts_and_within(case: Case) -> None:
    """The oracle itself says something: a model that repeats itself would hide faults."""
    assert len({tuple(tokens) for tokens in case.expected}) == PROMPTS
    assert sum(len(set(tokens)) for tokens in case.expected) > 8 * PROMPTS


def test_batched_equals_transformers(case: Case, engine: Loaded) -> None:
    assert max(len(prompt) for prompt in case.prompts) > 2 * WINDOW
    assert generate_greedy(engine, case.prompts, NEW_TOKENS).tokens == case.expected


@pytest.mark.slow
def test_alone_equals_transformers(case: Case, engine: Loaded) -> None:
    assert generate_greedy(engine, case.prompts, NEW_TOKENS, max_batch=1).tokens == case.expected


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_any_chunk_size(case: Case, engine: Loaded, chunk: int) -> None:
    assert generate_greedy(engine, case.prompts, NEW_TOKENS, chunk=chunk).tokens == case.expected


def test_preempted_and_recomputed(case: Case, engine: Loaded) -> None:
    """A pool that holds little more than one of them at its longest makes the others give way."""
    longest = engine.layout.blocks_for_request(max(map(len, case.prompts)) + NEW_TOKENS - 1, 24)
    outcome = generate_greedy(engine, case.prompts, NEW_TOKENS, blocks=1 + longest * 5 // 4, chunk=24)
    assert outcome.preemptions >= 3
    assert outcome.tokens == case.expected


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"backend": "reference"}, {"flash_attention": False}], ids=str)
def test_other_kernels(case: Case, changes: dict[str, Any]) -> None:
    engine = load_engine(case.tiny.path, **changes)
    assert generate_greedy(engine, case.prompts, NEW_TOKENS).tokens == case.expected


def test_stale_blocks_are_never_read(case: Case, engine: Loaded) -> None:
    """Whatever a block's last holder left, NaN included, changes nothing."""
    for layer in engine.runner._cache.layers:  # type: ignore[attr-defined]  # the test reaches inside
        layer[1:200] = float("nan")
    assert generate_greedy(engine, case.prompts, NEW_TOKENS, chunk=13).tokens == case.expected


# The comparison sees the faults that matter: with one put in, it fails.


@pytest.fixture(scope="module")
def gemma_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(MODELS["gemma3"](tmp_path_factory.mktemp("tiny") / "model.gguf"))


@pytest.mark.parametrize("off_by", [-1, 1])
def test_fault_window(gemma_case: Case, tmp_path: Path, off_by: int) -> None:
    tiny_gemma3(tmp_path / "wrong.gguf", seed=4, window=WINDOW + off_by)
    assert differing(gemma_case, tmp_path / "wrong.gguf") > PROMPTS // 2


def test_fault_local_rope_base(gemma_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from halogend.checkpoint import gguf_parameters

    monkeypatch.setattr(gguf_parameters.GgufParameters, "_base", lambda self, name, default: 1_000_000.0)
    assert differing(gemma_case, gemma_case.tiny.path) > 0


def test_fault_a_block_not_cleared(gemma_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from halogend.engine.kvcache import KvCache

    monkeypatch.setattr(KvCache, "clear", lambda self, _: None)
    engine = load_engine(gemma_case.tiny.path)
    for layer in engine.runner._cache.layers:  # type: ignore[attr-defined]  # the test reaches inside
        layer[1:200] = float("nan")
    assert generate_greedy(engine, gemma_case.prompts, NEW_TOKENS).tokens != gemma_case.expected


def differing(case: Case, path: Path, **changes: Any) -> int:
    tokens = generate_greedy(load_engine(path, **changes), case.prompts, NEW_TOKENS).tokens
    return sum(ours != theirs for ours, theirs in zip(tokens, case.expected, strict=True))
