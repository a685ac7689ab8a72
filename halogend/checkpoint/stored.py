"""How a matrix lies in a checkpoint's files, and which rows of it a model's weight is.

    fused QKV [q + k + v, h]      three weights, each some rows of one stored matrix
    experts [E, f, h]             E weights, each f rows of one stored matrix of E * f rows
    GPTQ: codes, zeros, scales    one stored matrix over four tensors

So whoever decodes has one question to answer: rows a to b of a stored matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halogend.checkpoint.tensor_table import TensorInfo
from halogend.checkpoint.v2.layout import Plane


@dataclass(frozen=True, slots=True)
class Plain:
    """One tensor, of numbers or of GGML blocks; leading axes are flattened, a vector is a column, a
    scalar one row of one column."""

    tensor: TensorInfo

    @property
    def rows(self) -> int:
        shape = self.tensor.shape
        return math.prod(shape if len(shape) == 1 else shape[:-1])

    @property
    def columns(self) -> int:
        shape = self.tensor.shape
        return shape[-1] if len(shape) > 1 else 1

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return (self.tensor,)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A matrix times the float32 `scale`: one number, or one for each matrix of a stack."""

    matrix: Plain
    scale: TensorInfo

    @property
    def rows(self) -> int:
        return self.matrix.rows

    @property
    def columns(self) -> int:
        return self.matrix.columns

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return (self.matrix.tensor, self.scale)


@dataclass(frozen=True, slots=True)
class Fp8:
    """Eight-bit floats [rows, columns] times `scale`: one for all (`block` None), or one for each
    block of (rows, columns), [ceil(rows / block rows), ceil(columns / block columns)]."""

    weight: TensorInfo
    scale: TensorInfo
    block: tuple[int, int] | None

    @property
    def rows(self) -> int:
        return math.prod(self.weight.shape[:-1])

    @property
    def columns(self) -> int:
        return self.weight.shape[-1]

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return (self.weight, self.scale)


@dataclass(frozen=True, slots=True)
class Gptq:
    """Four-bit codes, eight along the columns in an int32: `qweight` [columns / 8, rows], `scales`
    [groups, rows], `qzeros` [groups, rows / 8]. Column c belongs to group `g_idx[c]`, or c // `group`
    where that is None. A zero point is the stored one plus `zero_offset` (0 or 1), modulo 16; with
    `zero_carry` the ones were added to whole int32s, so a code that wraps carries into the next."""

    qweight: TensorInfo
    qzeros: TensorInfo
    scales: TensorInfo
    g_idx: TensorInfo | None
    group: int
    zero_offset: int
    zero_carry: bool = False

    @property
    def rows(self) -> int:
        return self.qweight.shape[1]

    @property
    def columns(self) -> int:
        return self.qweight.shape[0] * 8

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        parts = (self.qweight, self.qzeros, self.scales)
        return parts if self.g_idx is None else (*parts, self.g_idx)


@dataclass(frozen=True, slots=True)
class Awq:
    """Four-bit codes, eight along the rows in an int32 in AutoAWQ's interleaved order: `qweight`
    [columns, rows / 8], `qzeros` [groups, rows / 8] (None: codes are signed around 8), `scales`
    [groups, rows]."""

    qweight: TensorInfo
    qzeros: TensorInfo | None
    scales: TensorInfo
    group: int

    @property
    def rows(self) -> int:
        return self.qweight.shape[1] * 8

    @property
    def columns(self) -> int:
        return self.qweight.shape[0]

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        parts = (self.qweight, self.scales)
        return parts if self.qzeros is None else (*parts, self.qzeros)


@dataclass(frozen=True, slots=True)
class _Laid:
    """A matrix [rows, columns] in a layout of v2: all its planes in one tensor, which has the matrix's shape
    and the type of its codes."""

    tensor: TensorInfo
    planes: tuple[Plane, ...]

    @property
    def rows(self) -> int:
        return self.tensor.shape[0]

    @property
    def columns(self) -> int:
        return self.tensor.shape[1]

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return (self.tensor,)


@dataclass(frozen=True, slots=True)
class RowInt8(_Laid):
    """Layout r8.v1: int8 codes times a scale for each row."""


@dataclass(frozen=True, slots=True)
class RowFp8(_Laid):
    """Layout f8.v1: float8 e4m3 codes times a scale for each row."""


@dataclass(frozen=True, slots=True)
class TiledInt4(_Laid):
    """Layout g32-a4.v1: tiles of `block` rows; a scale and a minimum for each 32 columns of a row."""

    block: int


Encoded = Plain | Scaled | Fp8 | Gptq | Awq | RowInt8 | RowFp8 | TiledInt4


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `first` to `first + rows - 1` of a stored matrix."""

    encoded: Encoded
    first: int
    rows: int

    @property
    def nbytes(self) -> int:
        """Its share of the stored matrix's bytes, rounded down."""
        return sum(tensor.nbytes for tensor in self.encoded.tensors) * self.rows // self.encoded.rows


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix (or a vector, as a column) of the model."""

    pieces: tuple[Piece, ...]
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        """What decoding it reads of the files."""
        return sum(piece.nbytes for piece in self.pieces)


def whole(encoded: Encoded) -> Weight:
    """All rows of a stored matrix."""
    return Weight((Piece(encoded, 0, encoded.rows),), encoded.rows, encoded.columns)
