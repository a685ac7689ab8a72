"""A load's files, while what is in them is still being read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from halogend.engine.files import FileBytes
from halogend.engine.read_ahead import ReadAhead, Span


class Reading:
    """Of what lies in `spans`. Both the files and what reads them are entered on `stack`."""

    def __init__(self, files: FileBytes, ahead: ReadAhead, spans: Sequence[Span], stack: ExitStack) -> None:
        self._files = files
        self._ahead = ahead
        self._spans = spans
        self._stack = stack

    @contextmanager
    def beside(self, layers: Sequence[int]) -> Iterator[None]:
        """Weights of these layers are there, and meanwhile this process's memory is what others take of it: no more of
        a file gets mapped. Raises CheckpointError where one is not what it was: to touch a page that it lost would end
        the process."""
        self._ahead.until(_count_up_to(self._spans, layers))
        self._files.check()
        with self._ahead.apart():
            yield

    def finish(self) -> None:
        """Every weight is usable, and the files are closed. Raises CheckpointError."""
        self._ahead.finish()
        self._stack.close()


def _count_up_to(spans: Sequence[Span], layers: Sequence[int]) -> int:
    """How many of them there are up to the last one of these layers."""
    prefixes = tuple(f"blk.{layer}." for layer in layers)
    return max((count for count, span in enumerate(spans, 1) if span.tensor.name.startswith(prefixes)), default=0)
