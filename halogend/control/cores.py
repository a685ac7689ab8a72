"""How many threads each engine may use: the cores, shared out among the engines that serve.

An engine alone gets all cores. Where two serve at once (two models, or an old generation that
drains) each gets its part, so that no two thread teams fight over a core.
"""

from __future__ import annotations

from halogend.control.generation import Generation


class Cores:
    """Single writer: convergence, which tells who serves."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._engines: list[Generation] = []

    def share(self, newcomers: int = 0) -> int:
        return max(1, self.count // max(1, len(self._engines) + newcomers))

    def join(self, generation: Generation) -> None:
        if generation not in self._engines:
            self._engines.append(generation)
            self._tell()

    def leave(self, generation: Generation) -> None:
        if generation in self._engines:
            self._engines.remove(generation)
            self._tell()

    def _tell(self) -> None:
        for engine in self._engines:
            engine.set_threads(self.share())
