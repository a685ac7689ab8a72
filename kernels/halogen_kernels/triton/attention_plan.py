"""What all layers of one kind share in a step, as tensors on the device that one copy brings there.

Prompt chunks are cut into tiles of query rows, those with most to read first; sequences that decode are rows of their
own, whose contexts are split so that a device has enough to do. Must never know a kernel's code.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

import torch
from torch import Tensor

from halogen_kernels.triton import tuning
from halogen_kernels.triton.tuning import Blocks
from halogen_kernels.values import AttentionShape, Span

NO_WINDOW = 1 << 30
HEADS_AT_ONCE = 16
"""Query heads of one key/value head that a program decodes: the rows of the least product there is."""
SPLIT_TOKENS = 256
"""A context is not split into parts of fewer positions."""
PROGRAMS_A_PROCESSOR = 4
"""So many are wanted; where there are fewer sequences, contexts are split."""
_ALIGNED = 4  # numbers of 32 bits: each tensor starts at a multiple of 16 bytes


@dataclass(frozen=True, slots=True, eq=False)
class PrefillTiles:
    """int32 [t, 2]: a tile's span, and its first row among that span's count * group. `in_runs` says so of the blocks
    of all these spans."""

    tiles: Tensor
    in_runs: bool


@dataclass(frozen=True, slots=True, eq=False)
class PrefillRows:
    """`spans` int32 [s, 4] has row, count, start and number of blocks; `tables` int32 [s, width] the blocks."""

    spans: Tensor
    tables: Tensor
    lists: tuple[PrefillTiles, ...]
    sizes: Blocks


@dataclass(frozen=True, slots=True, eq=False)
class DecodeRows:
    """`rows` int32 [b, 2] has row and end, which is 0 for padding: such a row of the result is zeros. `tables` int32
    [b, width] has their blocks. Contexts are in `splits` parts."""

    rows: Tensor
    tables: Tensor
    splits: int
    sizes: Blocks


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPlan:
    """`window` is NO_WINDOW where there is none."""

    shape: AttentionShape
    window: int
    prefill: PrefillRows | None
    decode: DecodeRows | None


def make_plan(
    shape: AttentionShape, spans: Sequence[Span], window: int | None, dtype: torch.dtype, device: torch.device
) -> AttentionPlan:
    """`dtype` is the cache's."""
    reach = NO_WINDOW if window is None else window
    chunks = [span for span in spans if span.count > 1]
    alone = [span for span in spans if span.count == 1]
    numbers = _Numbers()
    if chunks:
        sizes = sizes_of("paged_prefill", shape, dtype)
        lists = _tiles(shape, chunks, reach, sizes)
        heads = [(span.row, span.count, span.start, _block_count(span, shape)) for span in chunks]
        numbers.add(heads, 4)
        _add_tables(numbers, shape, chunks)
        for tiles in lists.values():
            numbers.add(tiles, 2)
    if alone:
        numbers.add([(span.row, span.end) for span in alone], 2)
        _add_tables(numbers, shape, alone)
    tensors = iter(numbers.on(device))
    prefill = decode = None
    if chunks:
        rows, tables = next(tensors), next(tensors)
        prefill = PrefillRows(rows, tables, tuple(PrefillTiles(next(tensors), in_runs) for in_runs in lists), sizes)
    if alone:
        longest = max(min(span.end, reach) for span in alone)
        splits = _splits(shape, len(alone), longest, device)
        decode = DecodeRows(next(tensors), next(tensors), splits, sizes_of("paged_decode", shape, dtype))
    return AttentionPlan(shape, reach, prefill, decode)


class FixedDecode:
    """A plan for sequences that decode, up to `rows` of them with up to `width` blocks each, whose tensors stay where
    they are: a captured graph that read them reads what `fill` has put there since. Row i is sequence i's. Single
    writer: the runner's thread."""

    def __init__(
        self, shape: AttentionShape, window: int | None, dtype: torch.dtype, size: tuple[int, int], device: torch.device
    ) -> None:
        rows, width = size
        reach = NO_WINDOW if window is None else window
        self._padding = [(row, 0) for row in range(rows)]
        self._rows = torch.tensor(self._padding, dtype=torch.int32).to(device)
        self._tables = torch.zeros(rows, -(-width // _ALIGNED) * _ALIGNED, dtype=torch.int32, device=device)
        splits = _splits(shape, rows, min(width * shape.block_tokens, reach), device)
        decode = DecodeRows(self._rows, self._tables, splits, sizes_of("paged_decode", shape, dtype))
        self.plan = AttentionPlan(shape, reach, None, decode)

    def fill(self, spans: Sequence[Span]) -> None:
        """Puts these, each of one row, into the plan; rows behind them are padding. Returns before the device has the
        numbers; what it is given to do afterwards finds them. Raises ValueError for more than there is room for."""
        count = [_block_count(span, self.plan.shape) for span in spans]
        if len(spans) > len(self._rows) or max(count, default=0) > self._tables.shape[1]:
            raise ValueError(f"{len(spans)} sequences of up to {max(count)} blocks: more than {self._tables.shape}")
        numbers = _Numbers()
        numbers.add([(row, span.end) for row, span in enumerate(spans)] + self._padding[len(spans) :], 2)
        if spans:
            _add_tables(numbers, self.plan.shape, spans)
        rows, *tables = numbers.on(self._rows.device)
        self._rows.copy_(rows)
        for table in tables:
            self._tables[: len(spans), : table.shape[1]].copy_(table)


class _Numbers:
    """Tables of 32-bit numbers, gathered so that they travel together."""

    def __init__(self) -> None:
        self._held = array("i")
        self._places: list[tuple[int, int, int]] = []

    def add(self, rows: Sequence[Sequence[int]], width: int) -> None:
        """A table of these rows, filled up with zeros to `width`."""
        self._places.append((len(self._held), len(rows), width))
        for row in rows:
            self._held.extend(row)
            self._held.extend(repeat(0, width - len(row)))
        self._held.extend(repeat(0, -len(self._held) % _ALIGNED))

    def on(self, device: torch.device) -> list[Tensor]:
        """Each table int32 [rows, width], in order, from one copy."""
        held = torch.frombuffer(self._held, dtype=torch.int32)
        if device.type == "cuda":
            held = held.pin_memory().to(device, non_blocking=True)
        elif device.type != "cpu":
            held = held.to(device)
        return [held[start : start + rows * width].view(rows, width) for start, rows, width in self._places]


def sizes_of(op: str, shape: AttentionShape, dtype: torch.dtype) -> Blocks:
    """From the tuning tables; `dtype` is the cache's."""
    return tuning.pick(op, head_dim=shape.head_dim, held_bytes=dtype.itemsize, softcap=shape.softcap != 0)


def in_runs(blocks: Sequence[int], places: Iterable[int], run: int) -> bool:
    """Whether the blocks at these places of a table lie as a device reads them at once: `run` neighbours, from a
    multiple of `run` on, at places from a multiple of `run` on."""
    first: dict[int, int] = {}
    for place in places:
        start = blocks[place] - place % run
        if start % run or first.setdefault(place // run, start) != start:
            return False
    return True


def _tiles(
    shape: AttentionShape, chunks: Sequence[Span], reach: int, sizes: Blocks
) -> dict[bool, list[tuple[int, int]]]:
    """By whether their span's blocks lie in runs; longest first."""
    found: dict[bool, list[tuple[int, int, int]]] = {}
    for number, span in enumerate(chunks):
        first = max(0, span.start - reach + 1) // shape.block_tokens
        places = range(first, _block_count(span, shape))
        tiles = found.setdefault(in_runs(span.blocks, places, sizes["BLOCK_N"] // shape.block_tokens), [])
        for row in range(0, span.count * shape.group, sizes["BLOCK_M"]):
            tiles.append((min(span.start + row // shape.group, reach), number, row))
    return {
        aligned: [(number, row) for _, number, row in sorted(tiles, key=lambda tile: -tile[0])]
        for aligned, tiles in found.items()
    }


def _add_tables(numbers: _Numbers, shape: AttentionShape, spans: Sequence[Span]) -> None:
    counts = [_block_count(span, shape) for span in spans]
    numbers.add([span.blocks[:count] for span, count in zip(spans, counts, strict=True)], max(counts))


def _block_count(span: Span, shape: AttentionShape) -> int:
    return -(-span.end // shape.block_tokens)


def _splits(shape: AttentionShape, rows: int, longest: int, device: torch.device) -> int:
    programs = rows * shape.kv_heads * -(-shape.group // HEADS_AT_ONCE)
    wanted = PROGRAMS_A_PROCESSOR * _processors(device)
    return max(1, min(-(-wanted // programs), longest // SPLIT_TOKENS))


@lru_cache(maxsize=8)
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
