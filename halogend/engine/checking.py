"""Whether the bytes of a v2 checkpoint are those that were written: `load.verify: full`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from halogend.checkpoint.v2.digests import Chunk, check_chunk, chunks_of
from halogend.checkpoint.v2.reader import V2File


def check_share(
    file: V2File, descriptors: Sequence[int], threads: int, advance: Callable[[int], None], share: tuple[int, int]
) -> None:
    """Rank i of n checks every n-th chunk from the i-th on: `share` is (i, n). Raises CheckpointError naming the
    tensors of the first chunk that differs."""
    rank, ranks = share
    mine = [chunk for chunk in chunks_of(file) if chunk.number % ranks == rank]

    def check(chunk: Chunk) -> None:
        check_chunk(file, chunk, descriptors[chunk.part], advance)

    with ThreadPoolExecutor(threads, "verify") as pool:
        try:
            for _ in pool.map(check, mine):
                pass
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def checked_bytes(file: V2File) -> int:
    return sum(chunk.nbytes for chunk in chunks_of(file))
