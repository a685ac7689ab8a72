"""What running sequences would hold if blocks were of another size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from halogend.sched.blocks import BLOCK_TOKENS, blocks_for

Held = tuple[Sequence[int], int]  # the blocks of a sequence, and its positions that are written


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


def unwritten(held: Iterable[Held]) -> float:
    """Internal fragmentation: slots without a position / slots of referenced blocks, each block once."""
    fill: dict[int, int] = {}
    for blocks, written in held:
        for place, block in enumerate(blocks):
            there = min(BLOCK_TOKENS, max(0, written - place * BLOCK_TOKENS))
            fill[block] = max(fill.get(block, 0), there)
    return 1 - sum(fill.values()) / (len(fill) * BLOCK_TOKENS) if fill else 0.0


def scattered(held: Iterable[Held], long_tokens: int, run_tokens: int) -> float:
    """External fragmentation: the share of the positions of sequences with `long_tokens` or more that lie in runs
    of blocks in a row of less than `run_tokens`."""
    positions = in_runs = 0
    for blocks, written in held:
        if written < long_tokens:
            continue
        positions += written
        in_runs += sum(tokens for tokens in runs(blocks[: blocks_for(written)], written) if tokens >= run_tokens)
    return 1 - in_runs / positions if positions else 0.0


def runs(blocks: Sequence[int], written: int) -> list[int]:
    """Positions in each run of blocks that lie one behind the other."""
    lengths: list[int] = []
    for place, block in enumerate(blocks):
        tokens = min(BLOCK_TOKENS, written - place * BLOCK_TOKENS)
        if place and block == blocks[place - 1] + 1:
            lengths[-1] += tokens
        else:
            lengths.append(tokens)
    return lengths
