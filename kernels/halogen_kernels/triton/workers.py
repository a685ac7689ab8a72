"""Work spread over processes, each a fork of this one, which survives that one of them dies.

A compiler that finds itself in a state it does not know ends its process; what it was compiling has failed then, and
the rest goes on. Items are not sent: a fork has them already. Knows nothing of kernels.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item could not be made."""

    text: str


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    ours: Connection
    number: int


def in_processes(
    make: Callable[[Item], Made], items: Sequence[Item], jobs: int
) -> Iterator[tuple[int, Made | Failure]]:
    """Yields (number of the item, what `make` returned for it, or why it did not), in the order they end in. What is
    returned is pickled. Call it before this process starts threads."""
    rest = iter(range(len(items)))
    workers: list[_Worker] = []
    for number in _first(rest, max(jobs, 1)):
        workers.append(_start(make, items, number, workers))
    while workers:
        for ready in wait([worker.ours for worker in workers]):
            worker = next(each for each in workers if each.ours is ready)
            outcome = _received(worker)
            yield worker.number, outcome
            following = next(rest, None)
            if not worker.process.is_alive():
                workers.remove(worker)
                workers += [] if following is None else [_start(make, items, following, workers)]
            elif following is None:
                workers.remove(worker)
                worker.ours.send(None)
                worker.process.join()
                worker.ours.close()
            else:
                worker.number = following
                worker.ours.send(following)


def _first(rest: Iterator[int], count: int) -> list[int]:
    return [number for _, number in zip(range(count), rest, strict=False)]  # `rest` keeps what is not taken


def _start(make: Callable[[Any], Any], items: Sequence[Any], number: int, others: Sequence[_Worker]) -> _Worker:
    """A fork has the ends of all pipes that we have, and closes them: a worker is to see that we are gone."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    not_its = [ours, *(each.ours for each in others)]
    process = context.Process(target=_work, args=(make, items, theirs, not_its), daemon=True)
    process.start()
    theirs.close()
    ours.send(number)
    return _Worker(process, ours, number)


def _received(worker: _Worker) -> Any:
    try:
        return worker.ours.recv()
    except EOFError:
        worker.process.join()
        return Failure(f"the compiler died with exit status {worker.process.exitcode}")


def _work(make: Callable[[Any], Any], items: Sequence[Any], theirs: Connection, not_its: Sequence[Connection]) -> None:
    for connection in not_its:
        connection.close()
    while (number := _next(theirs)) is not None:
        try:
            made = make(items[number])
        except Exception as error:  # noqa: BLE001 - a compiler raises whatever it likes; the item has failed, with this
            made = Failure("".join(traceback.format_exception_only(error)).strip()[-2000:])
        theirs.send(made)


def _next(theirs: Connection) -> int | None:
    """None when there is nothing more to do, or nobody who wants it."""
    try:
        number: int | None = theirs.recv()
    except (EOFError, OSError):
        return None
    return number
