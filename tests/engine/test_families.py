"""Every architecture, in every layout that its checkpoints come in, gives the tokens that transformers gives.

Float32 against float64, 20 prompts of 1 to 120 tokens and 64 new ones, windows of 16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from support import greedy_case, tiny_gguf, tiny_hf
from support.engine_driver import engine_spec, generate_greedy, load_engine
from support.engine_logits import largest_error
from support.greedy_case import LENGTHS, NEW_TOKENS, PROMPTS, Case
from support.tiny_families import IN_GGUF, ORIGINAL_CONTEXT, VARIANTS, WINDOW
from support.tiny_hf import TinyDir
from support.tiny_layouts import LAYOUTS

TOLERANCE = 2e-5  # of the largest logit
CUT_UP = ("qwen2-window",)  # by default; the others are slow tests
FORMATS = [*(("hf", name) for name in VARIANTS), *(("gguf", name) for name in IN_GGUF)]

Get = Callable[[str], TinyDir]
GetCase = Callable[[str], Case]


@pytest.fixture(scope="module")
def get(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """Each variant's directory, made once."""
    root = tmp_path_factory.mktemp("families")
    made: dict[str, TinyDir] = {}

    def by_name(name: str) -> TinyDir:
        if name not in made:
            made[name] = tiny_hf.make(name, root / name, seed=1)
        return made[name]

    return by_name


@pytest.fixture(scope="module")
def get_case(get: Get) -> GetCase:
    made: dict[str, Case] = {}

    def by_name(name: str) -> Case:
        if name not in made:
            made[name] = greedy_case.make_case(get(name))
        return made[name]

    return by_name


def path_of(tiny: TinyDir, format_: str, tmp_path: Path) -> Path:
    return tiny.path if format_ == "hf" else tiny_gguf.from_hf(tiny, tmp_path / "model.gguf")


@pytest.mark.parametrize("name", VARIANTS)
def test_the_oracle_says_something(get_case: GetCase, name: str) -> None:
    """A model that repeats itself, or its prompts alike, would hide faults."""
    case = get_case(name)
    assert max(len(prompt) for prompt in case.prompts) > 2 * WINDOW
    assert len({tuple(tokens) for tokens in case.expected}) == PROMPTS
    assert sum(len(set(tokens)) for tokens in case.expected) > 15 * PROMPTS


@pytest.mark.parametrize(("format_", "name"), FORMATS)
def test_tokens(get: Get, get_case: GetCase, tmp_path: Path, format_: str, name: str) -> None:
    case = get_case(name)
    engine = load_engine(path_of(get(name), format_, tmp_path))
    assert generate_greedy(engine, case.prompts, NEW_TOKENS).tokens == case.expected


@pytest.mark.parametrize(
    "name", [name if name in CUT_UP else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def test_cut_up_and_preempted(get: Get, get_case: GetCase, name: str) -> None:
    """Chunks of 7, and a pool that holds little more than the longest request and makes the others give way."""
    case = get_case(name)
    engine = load_engine(get(name).path)
    assert generate_greedy(engine, case.prompts, NEW_TOKENS, chunk=7).tokens == case.expected
    blocks = 1 + engine.layout.blocks_for_request(max(LENGTHS) + NEW_TOKENS, 24) * 5 // 4
    preempted = generate_greedy(engine, case.prompts, NEW_TOKENS, blocks=blocks, chunk=24)
    # A request that sees a window in every layer does not grow, so none has to give way.
    assert preempted.preemptions > 0 or None not in engine.layout.windows
    assert preempted.tokens == case.expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(get: Get, tmp_path: Path, layout: str) -> None:
    name, rewrite = LAYOUTS[layout]
    assert largest_error(rewrite(get(name), tmp_path / "layout")) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_of_layouts(get: Get, get_case: GetCase, tmp_path: Path, layout: str) -> None:
    name, rewrite = LAYOUTS[layout]
    tiny = rewrite(get(name), tmp_path / "layout")
    case = get_case(name) if tiny.source == get(name).path else greedy_case.make_case(tiny)
    assert generate_greedy(load_engine(tiny.path), case.prompts, NEW_TOKENS).tokens == case.expected


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout.startswith("old-")])
def test_transformers_takes_old_spellings_alike(get: Get, tmp_path: Path, layout: str) -> None:
    """What the layouts call the old spelling is one."""
    name, rewrite = LAYOUTS[layout]
    tiny = rewrite(get(name), tmp_path / "layout")
    tokens = torch.arange(4, 100)[None]
    with torch.no_grad():
        old, new = (model.reference()(tokens).logits for model in (replace(tiny, source=tiny.path), get(name)))
    assert torch.equal(old, new)


@pytest.mark.parametrize("format_", ["hf", "gguf"])
def test_short_contexts_take_the_short_factors(tmp_path: Path, format_: str) -> None:
    """A longrope model served up to its original length is the model that it was before it was stretched."""
    tiny = replace(tiny_hf.make("phi3-longrope", tmp_path / "hf", seed=1), stretched=False)
    path = path_of(tiny, format_, tmp_path)
    limits = msgspec.structs.replace(engine_spec(path).limits, max_model_len=ORIGINAL_CONTEXT)
    assert largest_error(replace(tiny, path=path), limits=limits) < TOLERANCE
    assert largest_error(replace(tiny, path=path)) > 100 * TOLERANCE


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_other_types_of_a_gguf(tmp_path: Path, kind: str) -> None:
    """Stacked experts too, against transformers with the weights that the `gguf` package reads back."""
    tiny = tiny_hf.make("qwen3_moe", tmp_path / "hf", seed=1, moe_intermediate_size=64)
    path = tiny_gguf.from_hf(tiny, tmp_path / "model.gguf", kind)
    rounded = tiny_gguf.rounded(tiny, tmp_path / "rounded", kind)
    assert largest_error(replace(rounded, path=path)) < TOLERANCE
    assert largest_error(replace(tiny, path=path)) > 10 * TOLERANCE
