"""Prompts and the greedy tokens that a float64 model of transformers continues them with.

Nothing in a case is close: a prompt whose continuation holds a near-tie, of two tokens or of two
experts, is replaced by another when the case is made. So float32 must give the very same tokens.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

PROMPTS = 20
NEW_TOKENS = 64
NEAR_TIE = 1e-3  # of two logits
NEAR_ROUTE = 2e-4  # of two experts' router logits
LENGTHS = (1, 2, 15, 16, 17, 33, 48, 65, 90, 120)
_FIRST_TOKEN = 4  # below it are control tokens


class Oracle(Protocol):
    @property
    def vocab_size(self) -> int: ...

    def reference(self) -> Any: ...


@dataclass(frozen=True)
class Case:
    prompts: list[list[int]]
    expected: list[list[int]]


def make_case(oracle: Oracle, count: int = PROMPTS, *, seed: int = 0) -> Case:
    """`count` prompts, equally many of each length, and NEW_TOKENS tokens for each. The tokens come
    out of transformers' generation, with its cache, and are checked by one pass without a cache."""
    reference = oracle.reference().double().eval()
    generator = torch.Generator().manual_seed(seed)
    lengths = [length for length in LENGTHS for _ in range(count // len(LENGTHS))]
    prompts: list[list[int]] = [[] for _ in lengths]
    expected: list[list[int]] = [[] for _ in lengths]
    open_places = list(range(len(lengths)))
    while open_places:
        for place in open_places:
            size = (lengths[place],)
            prompts[place] = torch.randint(_FIRST_TOKEN, oracle.vocab_size, size, generator=generator).tolist()
        drawn = [prompts[place] for place in open_places]
        answers = continuations(reference, drawn, NEW_TOKENS)
        clear = clear_choices(reference, drawn, answers)
        for place, answer in zip(open_places, answers, strict=True):
            expected[place] = answer
        open_places = [place for place, is_clear in zip(open_places, clear, strict=True) if not is_clear]
    return Case(prompts, expected)


@torch.no_grad()
def continuations(reference: Any, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """`count` greedy tokens for each prompt, all prompts in one batch, padded on the left."""
    from transformers import GenerationConfig

    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    # As its own, or what is unset here, such as the end token, would come from there.
    reference.generation_config = GenerationConfig(max_new_tokens=count, do_sample=False, pad_token_id=0)
    with _padding_allowed(reference):
        out = reference.generate(ids, attention_mask=mask)
    return [list(row) for row in out[:, longest:].tolist()]


@torch.no_grad()
def clear_choices(reference: Any, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> list[bool]:
    """Whether each answer is made of clear choices only, by one pass over prompt and answer."""
    rows = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    with _router_gaps(reference, ids.shape) as gaps:
        logits = reference(ids, use_cache=False).logits
    clear = []
    for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        chosen = logits[index, len(prompt) - 1 : len(prompt) + len(answer) - 1]
        first_two = chosen.topk(2).values
        if chosen.argmax(-1).tolist() != list(answer):
            # A tie so near that the cache's other order of sums decides it, or a fault of the oracle.
            assert (first_two[:, 0] - first_two[:, 1]).min() < NEAR_TIE, "generation and one pass disagree"
        routed = min((gap[index, : len(rows[index])].min().item() for gap in gaps), default=NEAR_ROUTE)
        clear.append((first_two[:, 0] - first_two[:, 1]).min().item() >= NEAR_TIE and routed >= NEAR_ROUTE)
    return clear


@contextlib.contextmanager
def _padding_allowed(reference: Any) -> Iterator[None]:
    """Each model's own eager attention, but a mask that stays finite: its softmax is in float32, where
    float64's least number is minus infinity and a row of padding, all masked, would become NaN."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    def attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any) -> Any:
        eager = sys.modules[type(module).__module__].eager_attention_forward
        return eager(module, query, key, value, mask.clamp(min=-1e30), **options)

    AttentionInterface.register("padded_eager", attention)
    AttentionMaskInterface.register("padded_eager", eager_mask)
    reference.set_attn_implementation("padded_eager")
    try:
        yield
    finally:
        reference.set_attn_implementation("eager")


@contextlib.contextmanager
def _router_gaps(reference: Any, shape: torch.Size) -> Iterator[list[Tensor]]:
    """For each layer with experts [rows, positions]: by how much the last chosen one was ahead."""
    gaps: list[Tensor] = []

    def watch(router: Any, inputs: tuple[Tensor, ...], _output: Any) -> None:
        first = (inputs[0].reshape(-1, inputs[0].shape[-1]) @ router.weight.T).topk(router.top_k + 1).values
        gaps.append((first[:, -2] - first[:, -1]).view(shape))

    routers = [module for name, module in reference.named_modules() if name.endswith("mlp.gate")]
    handles = [router.register_forward_hook(watch) for router in routers]
    try:
        yield gaps
    finally:
        for handle in handles:
            handle.remove()
