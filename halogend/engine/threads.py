"""How many threads a step's operators get: as many as it may have, or one where sharing costs more.

Handing an operator out to other threads and waiting for them costs a few microseconds while they
spin, tens of them if they sleep between operators. A decode step has hundreds of operators, and with
a small model each is over before the others have woken up.
"""

from __future__ import annotations

import statistics
import time

import torch

_READ_BYTES_PER_S = 15e9  # of packed weights by one thread, measured
_FREE_ROWS = 6  # rows that cost no more than one: the product waits for memory
_PROBES = 15
_PROBE_VALUES = 1 << 16  # just enough for torch to share an operator out


class StepThreads:
    """`matrix_bytes` is the mean size of the matrices that the layers multiply with. One writer: the
    runner's thread, whose intra-operator threads this counts."""

    def __init__(self, matrix_bytes: float) -> None:
        self._matrix_s = matrix_bytes / _READ_BYTES_PER_S
        self._threads = 1
        self._handing_out_s = 0.0

    def set(self, threads: int) -> None:
        """At most `threads` from now on."""
        self._threads = threads
        torch.set_num_threads(threads)
        self._handing_out_s = handing_out_s(threads) if threads > 1 else 0.0

    def for_layers(self, rows: int) -> int:
        """For the layers of a step of `rows` rows."""
        alone_s = self._matrix_s * max(1.0, rows / _FREE_ROWS)
        return self._threads if alone_s * (1 - 1 / self._threads) > self._handing_out_s else 1

    def use_for_layers(self, rows: int) -> None:
        torch.set_num_threads(self.for_layers(rows))

    def use_all(self) -> None:
        torch.set_num_threads(self._threads)


def handing_out_s(threads: int) -> float:
    """What it costs now to share an operator out to `threads` threads, in seconds: how much longer a tiny one
    takes than its share of the work. Leaves `threads` set."""
    values = torch.zeros(_PROBE_VALUES)

    def probe(count: int) -> float:
        torch.set_num_threads(count)
        values.add_(1.0)
        times = []
        for _ in range(_PROBES):
            started = time.perf_counter()
            values.add_(1.0)
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    alone = probe(1)
    return max(0.0, probe(threads) - alone / threads)
