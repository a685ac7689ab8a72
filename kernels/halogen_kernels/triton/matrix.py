"""A matrix as the kernels read it: packed from slices, or taken from a file's layout, on a device.

Rows are held `stride` values apart, a multiple of 16, with zeros past the last column, so that every kernel reads
16 bytes at a time and none asks whether it may. Models' widths are such multiples: nothing is padded then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels.adopt import adopt_fp8, adopt_int8, int4_tiles
from halogen_kernels.formats import GROUP_COLUMNS, WeightFormat, group_count
from halogen_kernels.quantise import Fp8Part, Int4Tiles, Int8Part, pack_fp8, pack_int8, pack_tiles
from halogen_kernels.triton import targets
from halogen_kernels.triton.codes import TILE_ROWS
from halogen_kernels.values import LinearWeight, StoredPart

STRIDE_UNIT = 16


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """[rows, columns] in one of the kinds of `codes`. `codes` are the numbers themselves of a plain one, and
    bytes of an fp8 one; `scales` and `minima` are `codes` again where the kind has none."""

    format: WeightFormat
    codes: Tensor
    scales: Tensor
    minima: Tensor
    rows: int
    columns: int

    @property
    def kind(self) -> str:
        """What the kernels of the current target call it."""
        return "fp8_bits" if self.format == "fp8" and not targets.current().native_fp8 else self.format

    @property
    def stride(self) -> int:
        return padded(self.columns)

    @property
    def planes(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.codes, self.scales, self.minima

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in {id(plane): plane for plane in self.planes}.values())

    @property
    def numbers(self) -> Tensor:
        """Those of a plain one, without the padding."""
        return self.codes[:, : self.columns]


def matrix_of(weight: LinearWeight) -> Matrix:
    """A weight of these kernels is one matrix. Raises TypeError for another backend's."""
    part: Any = weight.parts[0]
    if not isinstance(part, Matrix):
        raise TypeError(f"a weight that another backend packed, as {type(part).__name__}")
    return part


def padded(columns: int) -> int:
    return -(-columns // STRIDE_UNIT) * STRIDE_UNIT


def pack(slices: Iterable[Tensor], weights: WeightFormat, device: torch.device) -> Matrix:
    """As the seam's PackLinear says. While it is put together, what is packed of it is held twice."""
    on_device = (slice_.to(device, copy=True) for slice_ in slices)
    if weights == "plain":
        return _plain(list(on_device))
    if weights == "int8":
        return _scaled(weights, [pack_int8(slice_) for slice_ in on_device])
    if weights == "fp8":
        return _scaled(weights, [pack_fp8(slice_) for slice_ in on_device])
    return _tiled([pack_tiles(rows, TILE_ROWS) for rows in _whole_tiles(on_device)])


def adopt(parts: Sequence[StoredPart], weights: WeightFormat, device: torch.device) -> Matrix:
    """As the seam's AdoptLinear says, but for this: several matrices below each other are put together in one, by
    a copy on the device, and so is one that is not laid out for the kernels: with its rows not padded, or in tiles of
    another size. One launch in each step is worth more than a copy at the start."""
    columns = {part.columns for part in parts}
    if len(columns) != 1:
        raise ValueError(f"matrices of {sorted(columns)} columns do not go below each other")
    if weights == "int8":
        return _scaled(weights, [_on(device, part) for stored in parts for part in adopt_int8(stored)])
    if weights == "fp8":
        return _scaled(weights, [_on(device, part) for stored in parts for part in adopt_fp8(stored)])
    return _tiled([_tiles_on(device, int4_tiles(stored)) for stored in parts])


def imagined(weights: WeightFormat, rows: int, columns: int, dtype: torch.dtype) -> Matrix:
    """One on the device "meta", for rehearsals; `dtype` is the compute dtype."""
    if weights == "int4":
        tiles, groups = -(-rows // TILE_ROWS), group_count(columns)
        codes = torch.empty(tiles, groups, GROUP_COLUMNS // 2, TILE_ROWS, dtype=torch.uint8, device="meta")
        scales = torch.empty(tiles, groups, TILE_ROWS, dtype=torch.float16, device="meta")
        return Matrix(weights, codes, scales, scales, rows, columns)
    held = {"plain": dtype, "int8": torch.int8, "fp8": torch.uint8}[weights]
    codes = torch.empty(rows, padded(columns), dtype=held, device="meta")
    scales = codes if weights == "plain" else torch.empty(rows, device="meta")
    return Matrix(weights, codes, scales, codes, rows, columns)


def _plain(slices: Sequence[Tensor]) -> Matrix:
    numbers = _joined([_padded(slice_) for slice_ in slices])
    return Matrix("plain", numbers, numbers, numbers, len(numbers), slices[0].shape[1])


def _scaled(weights: WeightFormat, parts: Sequence[Int8Part | Fp8Part]) -> Matrix:
    codes = _joined([_padded(part.codes if weights == "int8" else part.codes.view(torch.uint8)) for part in parts])
    return Matrix(weights, codes, _joined([part.scales for part in parts]), codes, len(codes), parts[0].codes.shape[1])


def _tiled(parts: Sequence[Int4Tiles]) -> Matrix:
    rows, columns = sum(part.rows for part in parts), parts[0].codes.shape[1] * GROUP_COLUMNS
    fits = all(part.block == TILE_ROWS for part in parts) and not any(part.rows % TILE_ROWS for part in parts[:-1])
    codes, scales, minima = (
        _joined([getattr(part, name) for part in parts]) if fits else _retiled(name, parts)
        for name in ("codes", "scales", "minima")
    )
    return Matrix("int4", codes, scales, minima, rows, columns)


def _retiled(name: str, parts: Sequence[Int4Tiles]) -> Tensor:
    """A plane of all parts [tiles, ..., block] as one [tiles, ..., TILE_ROWS], with zeros past the last row."""
    rows = torch.cat([getattr(part, name).movedim(0, -2).flatten(-2)[..., : part.rows] for part in parts], dim=-1)
    whole = F.pad(rows, (0, -rows.shape[-1] % TILE_ROWS))
    tiles: Tensor = whole.unflatten(-1, (-1, TILE_ROWS))
    return tiles.movedim(-2, 0).contiguous()


def _padded(rows: Tensor) -> Tensor:
    missing = padded(rows.shape[1]) - rows.shape[1]
    return F.pad(rows, (0, missing)) if missing else rows


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


def _whole_tiles(slices: Iterable[Tensor]) -> Iterator[Tensor]:
    """The same rows, cut so that all pieces but the last fill their tiles."""
    rest: list[Tensor] = []
    for slice_ in slices:
        group_count(slice_.shape[1])
        rows = torch.cat([*rest, slice_])
        whole = len(rows) // TILE_ROWS * TILE_ROWS
        if whole:
            yield rows[:whole]
        rest = [rows[whole:]] if whole < len(rows) else []
    yield from rest


def _on(device: torch.device, part: Any) -> Any:
    return type(part)(part.codes.to(device), part.scales.to(device))


def _tiles_on(device: torch.device, tiles: Int4Tiles) -> Int4Tiles:
    return Int4Tiles(tiles.codes.to(device), tiles.scales.to(device), tiles.minima.to(device), tiles.rows)
