"""How much of the KV memory in use holds nothing, and how much of long sequences lies scattered.

    internal   slots without a position / slots of referenced blocks, each block once
    external   1 - the share of long tables' positions that lie in runs of RUN_TOKENS and more

A run is blocks of one table, one behind the other. A table is long by what it holds: one that slides is as long
as its window. Reads tables and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Row
from dataclasses import dataclass

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.buddy import RUN_BLOCKS
from halogend.sched.request import Sequence

RUN_TOKENS = RUN_BLOCKS * BLOCK_TOKENS
LONG_TOKENS = 1024
"""From so many held positions on, a table is long."""

Held = tuple[Row[int], int]
"""One table's blocks of a sequence, 0 for those given back, and the positions that are written."""


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Both are shares, 0 when nothing is held."""

    internal: float
    external: float


def measure(running: Iterable[Sequence]) -> Fragmentation:
    """Of the sequences that hold blocks now."""
    held = [(table, sequence.computed) for sequence in running for table in sequence.blocks]
    return Fragmentation(unwritten(held), scattered(held))


def unwritten(held: Iterable[Held]) -> float:
    """Internal fragmentation."""
    blocks: set[int] = set()
    empty: dict[int, int] = {}  # slots without a position, of the blocks that have some
    for table, written in held:
        blocks.update(table)
        for place in range(written // BLOCK_TOKENS, len(table)):
            here = (place + 1) * BLOCK_TOKENS - max(written, place * BLOCK_TOKENS)
            empty[table[place]] = min(here, empty.get(table[place], here))
    blocks.discard(0)
    empty.pop(0, None)
    return sum(empty.values()) / (len(blocks) * BLOCK_TOKENS) if blocks else 0.0


def scattered(held: Iterable[Held], long_tokens: int = LONG_TOKENS, run_tokens: int = RUN_TOKENS) -> float:
    """External fragmentation, of tables with `long_tokens` or more in runs of less than `run_tokens`."""
    positions = in_runs = 0
    for table, written in held:
        if written >= long_tokens and sum(rows := list(runs(table, written))) >= long_tokens:
            positions += sum(rows)
            in_runs += sum(tokens for tokens in rows if tokens >= run_tokens)
    return 1 - in_runs / positions if positions else 0.0


def runs(table: Row[int], written: int) -> Iterator[int]:
    """Positions in each run of blocks that lie one behind the other."""
    first = 0
    places = min(len(table), -(-written // BLOCK_TOKENS))
    for place in range(1, places + 1):
        if place == places or table[place] != table[place - 1] + 1:
            if table[first]:
                yield min(place * BLOCK_TOKENS, written) - first * BLOCK_TOKENS
            first = place
