"""An entry of the index: a weight or a piece of text data, and where it lies."""

from __future__ import annotations

from dataclasses import dataclass

from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.checkpoint.v2.layout import BYTES, Plane, planes

TEXT_PREFIX = "text/"


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows (axis 0) or columns (axis 1) are shared out in whole `unit`s; None: every rank has all."""

    axis: int | None
    unit: int


WHOLE = Shard(None, 1)


@dataclass(frozen=True, slots=True)
class Entry:
    """`shape` is [rows, columns] or [length], as the model has it. `block` is the rows of a tile, 1
    where the layout has none. `offset` is from the start of the file of number `part`; `sha256` is of
    the `nbytes` from there, in hex."""

    name: str
    dtype: PlainType
    shape: tuple[int, ...]
    layout: str
    block: int
    offset: int
    nbytes: int
    part: int
    shard: Shard
    sha256: str

    @property
    def planes(self) -> tuple[Plane, ...]:
        return planes(self.layout, self.dtype, self.shape, self.block)

    @property
    def end(self) -> int:
        return self.offset + self.nbytes

    @property
    def is_text(self) -> bool:
        return self.layout == BYTES

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def columns(self) -> int:
        """1 of a vector, which is a column."""
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def tensor(self) -> TensorInfo:
        """In the words of other formats; `type` is of the codes where the layout has scales beside."""
        return TensorInfo(self.name, self.shape, self.dtype, self.offset, self.nbytes, self.part)
