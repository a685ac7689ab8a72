"""A v2 checkpoint of random weights, which nothing was converted to: it is as the converter would lay it out.

v2-bf16    numbers as they are
v2-int8    layout r8.v1; the embedding in bf16
v2-int4    layout g32-a4.v1; the embedding in bf16, the output matrix as int8
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.inventory import wanted_weights
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.v2.index import Quantisation, Source
from halogend.checkpoint.v2.layout import BYTES, DEFAULT_BLOCK, ROW, ROW_INT8, TILED_INT4, Plane, planes, planes_bytes
from halogend.checkpoint.v2.writer import Wanted, Writer
from halogend.engine.bench.random_files import Contents, Fill

FORMATS: dict[str, Quantisation] = {"v2-bf16": "bf16", "v2-int8": "int8", "v2-int4": "int4"}
_MATRICES = {
    "v2-bf16": (ROW, PlainType.BF16),
    "v2-int8": (ROW_INT8, PlainType.I8),
    "v2-int4": (TILED_INT4, PlainType.U8),
}
_OUTPUT = _MATRICES | {"v2-int4": _MATRICES["v2-int8"]}
_NO_TOKENIZER = b"{}"  # nothing sensible could be said with it
_FILLS = {
    (ROW, "values", PlainType.BF16): Fill.BF16,
    (ROW, "values", PlainType.F32): Fill.F32,
    (ROW_INT8, "codes", PlainType.I8): Fill.CODES,
    (ROW_INT8, "scales", PlainType.F32): Fill.SCALES_F32,
    (TILED_INT4, "codes", PlainType.U8): Fill.CODES,
    (TILED_INT4, "scales", PlainType.F16): Fill.SCALES_F16,
    (TILED_INT4, "minima", PlainType.F16): Fill.MINIMA_F16,
}


def write_v2(path: Path, geometry: Geometry, kind: str, report: Callable[[int, int], None]) -> None:
    """Raises CheckpointError where it cannot be written."""
    contents, done = Contents(), 0
    with Writer(path, model=geometry, quantisation=FORMATS[kind]) as writer:
        entries = writer.plan(list(wanted(geometry, kind)))
        total = sum(entry.nbytes for entry in entries)
        for entry in entries:
            if entry.is_text:
                writer.write(entry.name, 0, _NO_TOKENIZER)
                continue
            for plane in entry.planes:
                _write_plane(writer, entry.name, plane, _FILLS[entry.layout, plane.name, plane.dtype], contents)
            done += entry.nbytes
            report(done, total)
        writer.finish("files", Source(format="random", quantisation=FORMATS[kind], files=()))


def wanted(geometry: Geometry, kind: str) -> Iterator[Wanted]:
    """In load order, the tokenizer last."""
    for weight in wanted_weights(geometry):
        layout, dtype = _OUTPUT[kind] if weight.name == "output" else _MATRICES[kind]
        if weight.columns == 1:
            yield Wanted(weight.name, PlainType.F32, (weight.rows,), ROW)
        elif weight.name == "token_embd":
            yield Wanted(weight.name, PlainType.BF16, (weight.rows, weight.columns), ROW)
        else:
            yield Wanted(weight.name, dtype, (weight.rows, weight.columns), layout)
    yield Wanted("text/tokenizer.json", PlainType.U8, (len(_NO_TOKENIZER),), BYTES)


def v2_bytes(geometry: Geometry, kind: str) -> int:
    """Of all tensors."""
    return sum(
        planes_bytes(planes(each.layout, each.dtype, each.shape, DEFAULT_BLOCK if each.layout == TILED_INT4 else 1))
        for each in wanted(geometry, kind)
    )


def _write_plane(writer: Writer, name: str, plane: Plane, fill: Fill, contents: Contents) -> None:
    at = plane.offset
    for piece in contents.pieces(fill, plane.nbytes):
        writer.write(name, at, piece.data)
        at += len(piece)
