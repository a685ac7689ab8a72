"""`python -m support.killed_conversion SRC DST EVERY`: conversions that are killed at every EVERYth call that changes
the disk, each in a forked child. Prints a line of JSON for each: what lies at DST and beside it afterwards."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.v2.reader import open_v2
from halogend.checkpoint.v2.verify import verify
from halogend.engine.convert import convert

_CALLS = ("pwrite", "fsync", "ftruncate", "replace", "unlink", "open")


def conversions(source: Path, destination: Path, every: int) -> Iterator[dict[str, Any]]:
    """Until one was not killed before its end."""
    at, status = 1, signal.SIGKILL
    while status:
        status = _killed(source, destination, at)
        yield {"at": at, "killed": status != 0, **_left(destination)}
        at += every


def _killed(source: Path, destination: Path, at: int) -> int:
    child = os.fork()
    if child == 0:
        _kill_at(at)
        convert(source, destination, quant_policy="int4", threads=1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill_at(at: int) -> None:
    """This process, before that call."""
    left = at

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return run

    for name in _CALLS:
        setattr(os, name, counted(getattr(os, name)))


def _left(destination: Path) -> dict[str, Any]:
    beside = [path for path in destination.parent.iterdir() if path != destination]
    return {
        "there": destination.exists(),
        "sound": destination.exists() and not verify(open_v2(destination), 1),
        "beside": len(beside),
        "opens": [path.name for path in beside if _opens(path)],
    }


def _opens(path: Path) -> bool:
    try:
        open_checkpoint(path)
    except CheckpointError:
        return False
    return True


if __name__ == "__main__":
    torch.set_num_threads(1)
    for found in conversions(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])):
        sys.stdout.write(json.dumps(found) + "\n")
