"""How numbers come to a device: through memory that is pinned, in the order they are sent, waited for by nobody.

weights   a slice in pieces, by two buffers in turn for each loading thread
a step    one piece for the rows and one for each table of a plan, by buffers of torch's own, which
          it uses again when what was copied from them has arrived
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from halogen_kernels import LinearWeight, StoredPart, Workspace
from halogen_kernels.seam import AdoptLinear, PackLinear
from torch import Tensor

from halogend.engine.device.place import Place

_PIECE_BYTES = 8 << 20


class _Pinned:
    """One buffer, and whether what was copied from it last has arrived."""

    def __init__(self) -> None:
        self._bytes = torch.empty(_PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def send(self, values: Tensor, into: Tensor) -> None:
        """Waits until the buffer is free; then for nothing. Both contiguous, of one dtype and size."""
        self._arrived.synchronize()
        held = self._bytes[: values.nbytes].view(values.dtype)
        held.copy_(values)
        into.copy_(held, non_blocking=True)
        self._arrived.record()


@dataclass
class _Buffers(threading.local):
    """Each loading thread's own."""

    held: deque[_Pinned] = field(default_factory=deque)

    def next(self) -> _Pinned:
        if not self.held:
            self.held.extend(_Pinned() for _ in range(2))
        self.held.rotate()
        return self.held[0]


class WeightStaging:
    """Moves what is loaded to a place. Safe from several threads; on the host nothing moves."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._buffers = _Buffers()

    def move(self, values: Tensor) -> Tensor:
        """A copy on the device; the caller may use the memory of `values` again at once."""
        if self._place.is_host:
            return values
        self._place.enter()
        values = values.contiguous()
        out = torch.empty(values.shape, dtype=values.dtype, device=self._place.device)
        step = _PIECE_BYTES // values.dtype.itemsize
        for first in range(0, values.numel(), step):
            some = slice(first, first + step)
            self._buffers.next().send(values.view(-1)[some], out.view(-1)[some])
        return out

    def packing(self, pack: PackLinear) -> PackLinear:
        """`pack`, of slices that lie on the host."""

        def moved(slices: Iterable[Tensor]) -> LinearWeight:
            return pack(self.move(each) for each in slices)

        return pack if self._place.is_host else moved

    def adopting(self, adopt: AdoptLinear) -> AdoptLinear:
        """`adopt`, of parts that lie on the host: what it uses are copies that lie as they do."""

        def moved(parts: Sequence[StoredPart]) -> LinearWeight:
            return adopt([self._moved_part(part) for part in parts])

        return adopt if self._place.is_host else moved

    def _moved_part(self, part: StoredPart) -> StoredPart:
        return replace(part, planes={name: self.move(plane) for name, plane in part.planes.items()})


class StepWorkspace(Workspace):
    """Scratch memory on the device, and a step's numbers on their way there. Single writer: the runner's thread."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.device)
        self._is_host = place.is_host

    def send(self, values: Tensor) -> Tensor:
        if self._is_host:
            return values
        return values.pin_memory().to(self.device, non_blocking=True)
