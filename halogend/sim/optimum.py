"""How much of prompts could be found in a cache at best, by one who knows what will be asked."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from halogend.sched.blocks import BLOCK_TOKENS, blocks_for
from halogend.sim.job import Job

Rank = Callable[[int, float], float]  # (this use, the next use) -> goes the sooner, the higher


def optimum(jobs: Sequence[Job], blocks: int) -> int:
    """The most prompt tokens that a cache in a pool of `blocks` can save over `jobs`, which are served one
    after the other. No policy saves more, whatever it knows:

    A prompt is a path from the root of a tree of full blocks. While a job is served, all its blocks are in the
    pool, those of its answer and the last one, which is not full, too; what they leave may keep others'. Call
    a block of a prompt that is still there a hit. Forget for a moment that a block helps only if all before it
    are there: that allows more, and is paging with a capacity and pages that are held for a while. There it
    is optimal to drop, of the pages that are not held, the one whose next use is furthest (Belady 1966;
    the exchange argument only needs that what is dropped is not held, and that a page is worth the same
    wherever it lies). A block is used whenever one behind it on its path is: so its next use is never
    later, and with ties broken from the leaves up, leaves go first by themselves. What is kept is a tree,
    every hit helps, and the bound is reached. Tokens: a hit is worth a whole block, but the last token of a
    prompt is always computed.
    """
    return replay(jobs, blocks, lambda _, following: following)


def plain_lru(jobs: Sequence[Job], blocks: int) -> int:
    """What the least recently used leaf, whoever's it is, saves when it goes first."""
    return replay(jobs, blocks, lambda use, _: -use)


def replay(jobs: Sequence[Job], blocks: int, rank: Rank) -> int:
    """Prompt tokens found in a pool of `blocks` when what has the highest rank goes first, leaves before what
    they hang on. Raises ValueError for a job that does not fit alone."""
    paths = _paths(jobs)
    following = _next_uses(paths)
    cache = _Cache()
    tokens = 0
    for use, path in enumerate(paths):
        cache_blocks = blocks - path.partial
        if len(path.nodes) > cache_blocks:
            raise ValueError(f"a request of {len(path.nodes) + path.partial} blocks does not fit into {blocks}")
        hits = sum(node in cache for node in path.nodes[: path.prompt_blocks])
        tokens += min(hits * BLOCK_TOKENS, path.prompt_tokens - 1)
        cache.hold(path.nodes)
        cache.shrink(cache_blocks)
        cache.put(path.nodes, [rank(use, after) for after in following[use]])
    return tokens


@dataclass(frozen=True, slots=True)
class _Path:
    """The full blocks that a job writes, of which the first `prompt_blocks` are its prompt's alone."""

    nodes: list[int]
    prompt_blocks: int
    prompt_tokens: int
    partial: bool


class _Cache:
    """Nodes, the highest rank first to go, the deepest first of one rank."""

    def __init__(self) -> None:
        self._ranks: dict[int, float] = {}
        self._order: list[tuple[float, int, int]] = []  # (-rank, -depth, node); stale where the rank is another's

    def __contains__(self, node: int) -> bool:
        return node in self._ranks

    def hold(self, nodes: Iterable[int]) -> None:
        """They are there, and `shrink` does not drop them before they are put."""
        self._ranks.update(dict.fromkeys(nodes, math.nan))

    def shrink(self, most: int) -> None:
        while len(self._ranks) > most:
            rank, _, node = heapq.heappop(self._order)
            if self._ranks.get(node) == -rank:
                del self._ranks[node]

    def put(self, nodes: Sequence[int], ranks: Sequence[float]) -> None:
        for depth, (node, rank) in enumerate(zip(nodes, ranks, strict=True)):
            self._ranks[node] = rank
            heapq.heappush(self._order, (-rank, -depth, node))


def _paths(jobs: Sequence[Job]) -> list[_Path]:
    """Nodes are numbers; the same tokens after the same node are the same node."""
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    paths = []
    for job in jobs:
        written = (*job.prompt, *job.answer[:-1])  # the last token is sampled, never computed
        nodes: list[int] = []
        for start in range(0, len(written) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            key = (nodes[-1] if nodes else -1, written[start : start + BLOCK_TOKENS])
            nodes.append(known.setdefault(key, len(known)))
        prompt_blocks = len(job.prompt) // BLOCK_TOKENS
        paths.append(_Path(nodes, prompt_blocks, len(job.prompt), blocks_for(len(written)) > len(nodes)))
    return paths


def _next_uses(paths: Sequence[_Path]) -> list[list[float]]:
    """For each job, in the order of its nodes, the number of the next job that uses each; inf for none."""
    seen: dict[int, float] = {}
    uses: list[list[float]] = []
    for number in range(len(paths) - 1, -1, -1):
        uses.append([seen.get(node, math.inf) for node in paths[number].nodes])
        seen.update(dict.fromkeys(paths[number].nodes, number))
    return uses[::-1]
