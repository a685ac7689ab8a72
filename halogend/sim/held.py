"""What running sequences would hold if blocks were of another size."""

from __future__ import annotations

from collections.abc import Iterable

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.fragmentation import Held


def unwritten_in_fixed(held: Iterable[Held], fixed_tokens: int) -> float:
    """The share of slots without a position, were the same positions in blocks of `fixed_tokens`. What is shared
    now is shared then, too, as far as whole blocks go."""
    each = fixed_tokens // BLOCK_TOKENS
    full: set[tuple[int, ...]] = set()
    partial_blocks = partial_tokens = 0
    for blocks, written in held:
        whole = written // fixed_tokens
        full.update(tuple(blocks[place * each : (place + 1) * each]) for place in range(whole))
        if rest := written - whole * fixed_tokens:
            partial_blocks += 1
            partial_tokens += rest
    slots = (len(full) + partial_blocks) * fixed_tokens
    return 0.0 if not slots else (partial_blocks * fixed_tokens - partial_tokens) / slots
