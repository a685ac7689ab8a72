"""The whole engine over Triton's kernels, in the interpreter: the reference's tokens and logits.

Float32, so that tokens must be the very same; what the kernels do in bfloat16 is tested kernel by kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from halogen_kernels.triton.launching import launched
from support import tiny_hf
from support.engine_driver import generate_greedy, load_engine, spread
from support.sampling_reference import make_sampling
from support.served import GREEDY, Served
from support.tiny_models import TinyModel, tiny_gemma3, tiny_llama
from support.v2_models import as_v2

from halogend.control.working import recorded_sizes
from halogend.engine.device.graphs import DecodeGraphs
from halogend.engine.device.runner import DeviceRunner
from halogend.engine.interface import Loaded
from halogend.sched.errors import InvariantError
from halogend.sched.step import StepItem, StepPlan
from halogend.wire.requests import Sampling

TOLERANCE = 2e-5  # of the largest logit
NEW_TOKENS = 3
PROMPTS = ([5], [*range(7, 24)], [*range(40, 106)])
WINDOW = 16

MODELS: dict[str, Callable[[Path], TinyModel]] = {
    "llama": lambda path: tiny_llama(path, seed=3, layers=2, head_dim=24, heads=6, kv_heads=2),
    "gemma3": lambda path: tiny_gemma3(path, seed=4, window=WINDOW, layers=6),
}


def load_triton(path: Path, **changes: object) -> Loaded:
    return load_engine(path, **({"backend": "triton", "pool_bytes": 1 << 20} | changes))


def serve(engine: Loaded, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> list[list[int]]:
    served = Served(engine, prefill_chunk_tokens=40)
    for number, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
        served.add(number, prompt, count)
    served.run()
    return [served.tokens[number] for number in range(len(prompts))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer, where more would show nothing more."""
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "model.gguf", seed=1, layers=1).path


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_the_reference(tmp_path: Path, name: str) -> None:
    """A prompt in chunks beside others that decode, in a pool that grows; steps are planned ahead, and their tokens
    chosen beside the logits."""
    path = MODELS[name](tmp_path / "model.gguf").path
    prompts = PROMPTS if name == "llama" else PROMPTS[2:]
    counts = [NEW_TOKENS] * len(prompts)
    expected = serve(load_engine(path, backend="reference"), prompts, counts)
    engine = load_triton(path)
    before = engine.runner.touched_bytes
    with launched() as variants:
        assert serve(engine, prompts, counts) == expected
    assert len({token for tokens in expected for token in tokens}) > 1
    assert engine.steps_ahead == 1
    assert engine.runner.touched_bytes > before
    ops = {"paged_prefill", "paged_decode", "write_kv", "rms_norm", "rotate", "gated_linear", "sample"}
    assert ops <= {variant.op for variant in variants}


@pytest.mark.parametrize("precision", ["int8", "fp8", "int4"])
def test_quantised_weights_are_multiplied_as_by_the_reference(tiny: Path, tmp_path: Path, precision: str) -> None:
    path = as_v2(tiny, tmp_path / "model.hgn2", precision)
    given = {"precision": precision, "compute_dtype": "fp32", "kv_cache_dtype": "fp32"}
    ours, others = (_prompt_logits(load_engine(path, **given, backend=backend)) for backend in ("triton", "reference"))
    assert (ours - others).abs().max() < TOLERANCE * others.abs().max()


def test_keys_and_values_of_fewer_bits(tiny: Path) -> None:
    """As far from exact ones as their bits are, and no further."""
    exact = _prompt_logits(load_triton(tiny))
    for kv_dtype, tolerance in (("fp16", 2e-3), ("fp8", 0.2), ("int8", 0.05)):
        ours = _prompt_logits(load_triton(tiny, kv_cache_dtype=kv_dtype))
        error = float((ours - exact).abs().max() / exact.abs().max())
        assert tolerance / 100 < error < tolerance


def _prompt_logits(engine: Loaded) -> torch.Tensor:
    """Of a prompt in two chunks."""
    slots, blocks = torch.zeros(1, dtype=torch.int64), spread(engine, [3, 1])
    for number, (start, end) in enumerate(((5, 15), (15, 27))):
        tokens = tuple(range(start, end))
        item = StepItem(0, 0, start - 5, tokens, from_slot=False, blocks=blocks, samples=True)
        logits = engine.runner.forward(StepPlan(number, (item,)), slots).clone()
    return logits


SAMPLINGS: dict[str, Sampling] = {
    "greedy": GREEDY,
    "sampled": make_sampling(temperature=1.5, seed=3),
    "narrow": make_sampling(temperature=2.0, top_k=5, top_p=0.7, min_p=0.05, seed=9),
    "penalised": make_sampling(temperature=0.8, repetition_penalty=1.8, presence_penalty=1.0, seed=4),
}


def test_each_request_samples_as_on_the_host(tiny: Path) -> None:
    """Those with penalties too, whose tokens the host chooses, in one batch with the others."""
    tokens = {}
    for backend in ("cpu", "triton"):
        served = Served(load_triton(tiny, backend=backend))
        for number, sampling in enumerate(SAMPLINGS.values()):
            served.add(number, [7 + number, 8, 9], NEW_TOKENS, sampling=sampling)
        served.run()
        tokens[backend] = served.tokens
    assert tokens["triton"] == tokens["cpu"]


class AgainHere:
    """In the place of a device's graphs: does again what was recorded."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def record(self, run: Callable[[], torch.Tensor]) -> tuple[Callable[[], object], torch.Tensor]:
        self.recorded += 1
        out = run()

        def replay() -> None:
            self.replayed += 1
            out.copy_(run())

        return replay, out


class Refusing:
    def __init__(self, error: Exception | None = None) -> None:
        self._error = RuntimeError("not here") if error is None else error

    def record(self, run: Callable[[], torch.Tensor]) -> tuple[Callable[[], object], torch.Tensor]:
        raise self._error


def with_graphs(engine: Loaded, recorder: AgainHere | Refusing, rows: int = 4) -> Loaded:
    """Decode steps of up to `rows` rows are recorded."""
    runner = engine.runner
    assert isinstance(runner, DeviceRunner)
    model, cache = runner._model, runner._cache  # the test reaches inside
    graphs = DecodeGraphs(model, cache, recorder, longest=512)
    graphs.prepare(rows, lambda: None)
    return replace(engine, runner=DeviceRunner(model, cache, runner._progress, runner._place, graphs))


def test_decode_steps_that_are_replayed_give_the_same_tokens(tiny: Path) -> None:
    """Three rows in the bucket of four, then two, then one."""
    counts = [2, 3, 4]
    prompts = [prompt[:20] for prompt in PROMPTS]
    expected = serve(load_engine(tiny, backend="reference"), prompts, counts)
    recorder = AgainHere()
    assert serve(with_graphs(load_triton(tiny), recorder), prompts, counts) == expected
    assert (recorder.recorded, recorder.replayed) == (3, 3)


def test_every_bucket_is_recorded_before_it_is_needed(tiny: Path) -> None:
    recorder, bumped = AgainHere(), []
    engine = with_graphs(load_triton(tiny), recorder, rows=1)
    graphs = engine.runner._graphs  # type: ignore[attr-defined]  # the test reaches inside
    graphs.prepare(3, lambda: bumped.append(recorder.recorded))
    assert bumped == [2, 3]  # of four rows and of two
    assert serve(engine, [[5, 6]], [2]) == serve(load_engine(tiny, backend="reference"), [[5, 6]], [2])
    assert (recorder.recorded, recorder.replayed) == (3, 1)
    assert sorted(len(each.logits) for each in graphs._recordings.values()) == recorded_sizes(3)


def test_more_rows_than_were_recorded_are_launched_until_they_are(tiny: Path) -> None:
    """A step records nothing: its requests would wait for that."""
    prompts, counts = [[5, 6], [7, 8, 9]], [2, 2]
    expected = serve(load_engine(tiny, backend="reference"), prompts, counts)
    recorder = AgainHere()
    engine = with_graphs(load_triton(tiny), recorder, rows=1)
    graphs = engine.runner._graphs  # type: ignore[attr-defined]  # the test reaches inside
    graphs.expect(2)
    assert serve(engine, prompts, counts) == expected
    assert (recorder.recorded, recorder.replayed) == (1, 0)
    assert graphs.record() is False, "of one and of two: no more"
    assert serve(engine, prompts, counts) == expected
    assert (recorder.recorded, recorder.replayed) == (2, 1)


def test_of_sizes_that_no_batch_can_reach_any_more_none_is_recorded_and_none_is_lost(tiny: Path) -> None:
    prompts, counts = [[5, 6], [7, 8, 9]], [2, 2]
    expected = serve(load_engine(tiny, backend="reference"), prompts, counts)
    recorder = AgainHere()
    engine = with_graphs(load_triton(tiny), recorder, rows=2)
    graphs = engine.runner._graphs  # type: ignore[attr-defined]  # the test reaches inside
    graphs.expect(16)
    graphs.expect(1)
    assert graphs.record() is False
    assert recorder.recorded == 2
    assert serve(engine, prompts, counts) == expected, "a batch that is larger yet is replayed"
    assert recorder.replayed == 1
    graphs.expect(4)
    assert graphs.record() is False
    assert recorder.recorded == 3


@pytest.mark.parametrize("error", [RuntimeError("not here"), LookupError("not here"), OSError(28, "not here")])
def test_what_was_recorded_is_replayed_where_no_more_can_be(tiny: Path, error: Exception) -> None:
    recorder = AgainHere()
    engine = with_graphs(load_triton(tiny), recorder, rows=1)
    graphs = engine.runner._graphs  # type: ignore[attr-defined]  # the test reaches inside
    graphs._recorder = Refusing(error)
    graphs.expect(8)
    assert graphs.record() is False
    assert "not here" in graphs.reason
    assert serve(engine, [[5, 6]], [2]) == serve(load_engine(tiny, backend="reference"), [[5, 6]], [2])
    assert recorder.replayed == 1


def test_a_broken_invariant_is_never_taken_for_a_step_that_cannot_be_recorded(tiny: Path) -> None:
    with pytest.raises(InvariantError):
        with_graphs(load_triton(tiny), Refusing(InvariantError("two writers")))


def test_where_nothing_can_be_recorded_steps_are_launched(tiny: Path) -> None:
    engine, prompts = load_triton(tiny), [[5, 6, 7, 8]]
    refused = with_graphs(engine, Refusing())
    assert generate_greedy(refused, prompts, 2).tokens == generate_greedy(engine, prompts, 2).tokens
    assert "not here" in refused.runner._graphs.reason  # type: ignore[attr-defined]  # the test reaches inside


def test_stale_blocks_are_never_read(tiny: Path) -> None:
    """Whatever a block's last holder left, NaN included, changes nothing."""
    engine, prompts = load_triton(tiny), [[5, 6, 7, 8], [*range(9, 30)]]
    expected = generate_greedy(engine, prompts, 2).tokens
    with torch.inference_mode():
        for chunk in engine.runner._cache._chunks:  # type: ignore[attr-defined]  # the test reaches inside
            if chunk is not None:
                chunk.values.fill_(float("nan"))
    assert generate_greedy(engine, prompts, 2).tokens == expected


def test_a_pool_that_shrinks_keeps_what_moves(tiny: Path) -> None:
    engine, slots = load_triton(tiny), torch.zeros(1, dtype=torch.int64)

    def step(start: int, count: int, block: int) -> torch.Tensor:
        tokens = tuple(range(5 + start, 5 + start + count))
        item = StepItem(0, 0, start, tokens, from_slot=False, blocks=[[block]], samples=True)
        return engine.runner.forward(StepPlan(start, (item,)), slots).clone()

    step(0, 10, 2)
    expected = step(10, 1, 2)
    step(0, 10, 60)
    step(0, 10, 61)
    before = engine.runner.touched_bytes
    engine.runner.resize_pool(20, {60: 7})
    assert engine.runner.touched_bytes < before
    assert torch.equal(step(10, 1, 7), expected)


def test_what_runs_is_told(tiny: Path) -> None:
    kernels = load_triton(tiny).kernels
    assert kernels["attention_decode"] == "triton.paged_decode"
    assert kernels["decode_steps"] == "launched: kernels are interpreted"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral", "gemma2", "phi3", "llama-bias"])
def test_logits_of_every_kind_of_layer(tmp_path: Path, name: str) -> None:
    """Experts, soft caps, biases, windows and heads that are turned in part."""
    path = tiny_hf.make(name, tmp_path / "model", seed=1).path
    ours, others = (_prompt_logits(load_triton(path, backend=backend)) for backend in ("triton", "reference"))
    assert (ours - others).abs().max() < TOLERANCE * others.abs().max()


@pytest.mark.slow
def test_precisions_that_only_these_kernels_have(tiny: Path) -> None:
    """Near what float32 gives, and not the same."""
    exact = _prompt_logits(load_triton(tiny))
    for precision, compute, tolerance in (("fp16", "fp16", 1e-2), ("fp8", "fp32", 0.2)):
        engine = load_triton(tiny, precision=precision, compute_dtype=compute, kv_cache_dtype=compute)
        assert 1e-5 < float((_prompt_logits(engine) - exact).abs().max() / exact.abs().max()) < tolerance
