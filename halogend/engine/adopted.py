"""Weights that are used as they lie: where the file is mapped, or as a copy that is nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from halogen_kernels import StoredPart
from torch import Tensor

from halogend.checkpoint.adoption import LAYOUTS, Adoption
from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.stored import Encoded, RowFp8, RowInt8, TiledInt4
from halogend.checkpoint.v2.layout import Plane
from halogend.engine.codecs.planes import PLANE_TYPES
from halogend.engine.files import FileBytes
from halogend.engine.mapping import WeightMap
from halogend.sched.errors import InvariantError


class Adopted:
    """The weights of an `Adoption`. Safe from several threads. `advance` is told the bytes that were copied."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        adoption: Adoption,
        mapped: WeightMap,
        files: FileBytes,
        advance: Callable[[int], None],
    ) -> None:
        self._weights = checkpoint.weights
        self._adoption = adoption
        self._mapped = mapped
        self._files = files
        self._advance = advance

    def has(self, name: str) -> bool:
        """Whether it is used as it lies."""
        return self._adoption.has(name)

    def has_parts(self, names: Sequence[str]) -> bool:
        """Whether kernels take all of these as they lie."""
        return all(self.has(name) and type(self._stored(name)) in LAYOUTS for name in names)

    def raw(self, name: str) -> Tensor:
        """A weight of one stored tensor as its bytes, uint8, to be read only. Raises CheckpointError."""
        tensor = self._stored(name).tensors[0]
        if name in self._adoption.mapped:
            return self._mapped.view(tensor)
        return self._files.copy(tensor, self._advance)

    def part(self, name: str) -> StoredPart:
        """A matrix in a layout that kernels take. Raises CheckpointError."""
        stored = self._stored(name)
        if not isinstance(stored, RowInt8 | RowFp8 | TiledInt4):
            raise InvariantError(f"{name} is no matrix in a layout that kernels take")
        raw = self.raw(name)
        planes = {plane.name: _shown(raw, plane) for plane in stored.planes}
        return StoredPart(LAYOUTS[type(stored)], stored.rows, stored.columns, planes)

    def _stored(self, name: str) -> Encoded:
        return self._weights[name].pieces[0].encoded


def _shown(raw: Tensor, plane: Plane) -> Tensor:
    return raw[plane.offset : plane.offset + plane.nbytes].view(PLANE_TYPES[plane.dtype]).view(plane.shape)
