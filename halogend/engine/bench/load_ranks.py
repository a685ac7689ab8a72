"""How long the ranks of a tensor-parallel group take to read their own ranges of one v2 file, and how much they read.

Each rank is a process that reads with pread(2) in the file's order; all start at one moment. What a rank read is
counted twice: as it asked for it, and by the kernel (`rchar` of /proc/PID/io; `read_bytes`, which came from a disk).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.v2.reader import V2File, open_v2
from halogend.checkpoint.v2.shards import check_size, ranges
from halogend.engine.bench.children import ChildFailedError

_MODULE = "halogend.engine.bench.load_ranks"
_PIECE_BYTES = 8 << 20
_LIMIT_S = 1800.0


@dataclass(frozen=True, slots=True)
class RankFigures:
    """`wanted_bytes` are the rank's ranges; `asked_bytes` what it read by the kernel's count, `disk_bytes` what of
    that came from a disk."""

    read_s: float
    wanted_bytes: int
    asked_bytes: int
    disk_bytes: int


def read_ranks(path: Path, count: int) -> list[RankFigures]:
    """All ranks at once. Raises ChildFailedError."""
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(_started(path, rank, count)) for rank in range(count)]
        for process in ranks:
            if _line(process) != "ready":
                raise ChildFailedError(process.communicate()[1].strip())
        for process in ranks:
            if process.stdin is not None:
                process.stdin.write("go\n")
                process.stdin.flush()
        return [RankFigures(**json.loads(_line(process) or "{}")) for process in ranks]


@contextlib.contextmanager
def _started(path: Path, rank: int, count: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", _MODULE, str(path), str(rank), str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip() if process.stdout is not None else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """In the child: waits for a line on standard input, reads, prints figures."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
    parser.add_argument("path", type=Path)
    parser.add_argument("rank", type=int)
    parser.add_argument("of", type=int)
    args = parser.parse_args(arguments)
    try:
        file = open_v2(args.path)
        check_size(tuple(file.entries.values()), args.of, args.path)
    except CheckpointError as error:
        sys.stderr.write(error.message + "\n")
        return 1
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(json.dumps(asdict(read_rank(file, args.rank, args.of))) + "\n")
    return 0


def read_rank(file: V2File, rank: int, of: int) -> RankFigures:
    """Every range of the weights that this rank needs, once. Raises CheckpointError for a size that does not divide."""
    places = sorted(
        (entry.part, offset, nbytes)
        for entry in file.entries.values()
        if not entry.is_text
        for offset, nbytes in ranges(entry, rank, of)
    )
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(part.open("rb", buffering=0)) for part in file.files]
        before, began = _counted(), time.perf_counter()
        _read([opened.fileno() for opened in files], places)
        read_s, after = time.perf_counter() - began, _counted()
    wanted = sum(nbytes for _, _, nbytes in places)
    asked, disk = (after[name] - before[name] for name in ("rchar", "read_bytes"))
    return RankFigures(read_s, wanted, asked, disk)


def _read(descriptors: Sequence[int], places: Sequence[tuple[int, int, int]]) -> None:
    buffer = memoryview(bytearray(_PIECE_BYTES))
    for part, offset, nbytes in places:
        done = 0
        while done < nbytes:
            done += os.preadv(descriptors[part], [buffer[: nbytes - done]], offset + done)


def _counted() -> dict[str, int]:
    rows = (line.partition(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {name: int(value) for name, _, value in rows}


if __name__ == "__main__":
    sys.exit(main())
