"""How many blocks a sequence holds: one table of blocks for each group of layers."""

from __future__ import annotations

from dataclasses import dataclass, field

from halogend.sched.blocks import blocks_for


@dataclass(frozen=True, slots=True)
class KvLayout:
    """`windows` has an entry for each table: how many positions its layers see, the newest included;
    None is all. A logical block is BLOCK_TOKENS positions and takes one block of each table. Raises
    ValueError for no table or a window of none.

        table 0, everything    5  6  7  8  9        positions 0-79, next is 80
        table 1, window 20     0  0  0  2  4        what lies behind position 61 was given back: 0
    """

    windows: tuple[int | None, ...]
    sliding: tuple[tuple[int, int], ...] = field(init=False, compare=False, repr=False)  # (table, window)

    def __post_init__(self) -> None:
        if not self.windows or any(window is not None and window < 1 for window in self.windows):
            raise ValueError(f"a sequence cannot hold tables with the windows {self.windows}")
        pairs = ((table, window) for table, window in enumerate(self.windows) if window is not None)
        object.__setattr__(self, "sliding", tuple(pairs))

    @property
    def tables(self) -> int:
        """Blocks that one logical block takes."""
        return len(self.windows)

    @property
    def full(self) -> int | None:
        """The first table that keeps everything."""
        return next((table for table, window in enumerate(self.windows) if window is None), None)

    def blocks_for_request(self, tokens: int, step_tokens: int) -> int:
        """The most blocks that a request of `tokens` positions can hold when a step computes at most
        `step_tokens` of them and no other step is in flight. Never less for more of either."""
        logical = blocks_for(tokens)
        blocks = (len(self.windows) - len(self.sliding)) * logical
        for _, window in self.sliding:
            blocks += min(logical, sliding_blocks(window, step_tokens))
        return blocks


def sliding_blocks(window: int, step_tokens: int) -> int:
    """The most blocks of one table in use in a step, however long the sequence. A step of n positions
    reads and writes `window` - 1 + n positions in a row, which may begin anywhere in a block:
    its last position, at worst."""
    return blocks_for(window - 1 + step_tokens - 1) + 1
