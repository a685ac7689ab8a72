"""Any tiny checkpoint as a v2 file: decoded whole, packed by the kernels' own packers, written by the writer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import gguf
import torch
from halogen_kernels.quantise import pack_int8, pack_tiles
from torch import Tensor

from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.tokenizer_files import text_files
from halogend.checkpoint.v2.layout import BYTES, ROW, ROW_FP8, ROW_INT8, TILED_INT4, planes
from halogend.checkpoint.v2.writer import Source, Wanted, Writer
from halogend.engine.files import open_files
from halogend.engine.models.source import PairedHeads
from halogend.engine.tensors import Packing, WeightSource

_NUMBERS = {"fp32": (PlainType.F32, torch.float32), "bf16": (PlainType.BF16, torch.bfloat16)}
_LAYOUTS = {"int8": (ROW_INT8, PlainType.I8), "int4": (TILED_INT4, PlainType.U8), "fp8": (ROW_FP8, PlainType.F8_E4M3)}
_FP8_MOST = 448.0


def as_v2(
    source: Path,
    path: Path,
    quantisation: str = "int8",
    *,
    block: int = 32,
    part_bytes: int | None = None,
    table: str = "fp32",
) -> Path:
    """Matrices of layers in `quantisation`; the output matrix has an entry of its own, tied or not, in int8 where
    those are int4 or fp8; the embedding in the numbers of `table`."""
    checkpoint = open_checkpoint(source)
    model = replace(checkpoint.geometry, tied_embeddings=False)
    weights = _decoded(checkpoint)
    made = {name: _made(name, weights[name], quantisation, table, block) for name in weights}
    texts = _texts(source, checkpoint)
    wanted = [each for each, _ in made.values()]
    wanted += [Wanted(f"text/{name}", PlainType.U8, (len(data),), BYTES) for name, data in texts.items()]
    with Writer(path, model=model, quantisation=quantisation, block=block, part_bytes=part_bytes) as writer:  # type: ignore[arg-type]  # one of its words
        writer.plan(wanted)
        for name, (each, arrays) in made.items():
            laid = planes(each.layout, each.dtype, each.shape, block if each.layout == TILED_INT4 else 1)
            for plane, array in zip(laid, arrays, strict=True):
                data = memoryview(array.contiguous().view(-1).view(torch.uint8).numpy().data)
                writer.write(name, plane.offset, data)
            _fill_between(writer, name, laid)
        for name, data in texts.items():
            writer.write(f"text/{name}", 0, data)
        kind = "gguf" if checkpoint.gguf is not None else "files"
        writer.finish(kind, Source(format=checkpoint.format, quantisation=checkpoint.quantisation, files=()))
    return path


def _fill_between(writer: Writer, name: str, laid: Iterable) -> None:
    end = 0
    for plane in laid:
        if plane.offset > end:
            writer.write(name, end, bytes(plane.offset - end))
        end = plane.offset + plane.nbytes


def _decoded(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Every weight in the v2's terms, float32, vectors flat."""
    found: dict[str, Tensor] = {}
    with open_files(checkpoint, lambda: None) as files:
        packing = Packing(lambda slices: torch.cat([each.clone() for each in slices]), torch.float32)  # type: ignore[arg-type,return-value]  # numbers are what is wanted
        source = WeightSource(checkpoint, files, packing, lambda _: None)
        for name, weight in checkpoint.weights.items():
            paired = _paired(checkpoint, name, weight.rows)
            if weight.columns > 1:
                found[name] = source.linear([name], paired)  # type: ignore[assignment]  # as above
            elif name.endswith("norm"):
                values = source.norm(name)
                found[name] = values if paired is None else values[paired.order()]
            else:
                found[name] = source.vector([name], paired)
    found.setdefault("output", found["token_embd"])
    return found


def _paired(checkpoint: Checkpoint, name: str, rows: int) -> PairedHeads | None:
    part = name.split(".")[2] if name.startswith("blk.") else ""
    if checkpoint.adjacent_pairs or part not in ("attn_q", "attn_k", "attn_q_norm", "attn_k_norm"):
        return None
    geometry = checkpoint.geometry
    turned = 2 * len(geometry.ropes[geometry.rope_of[int(name.split(".")[1])]].frequencies)
    return PairedHeads(rows, geometry.head_dim, turned)


def _made(name: str, values: Tensor, quantisation: str, table: str, block: int) -> tuple[Wanted, tuple[Tensor, ...]]:
    if values.dim() == 1 or name.endswith(".ffn_gate_inp"):
        return Wanted(name, PlainType.F32, tuple(values.shape), ROW), (values,)
    quantisation = table if name == "token_embd" else quantisation
    quantisation = "int8" if name == "output" and quantisation in ("int4", "fp8") else quantisation
    if quantisation in _NUMBERS:
        kind, dtype = _NUMBERS[quantisation]
        return Wanted(name, kind, tuple(values.shape), ROW), (values.to(dtype),)
    layout, kind = _LAYOUTS[quantisation]
    return Wanted(name, kind, tuple(values.shape), layout), _packed(values, quantisation, block)


def _packed(values: Tensor, quantisation: str, block: int) -> tuple[Tensor, ...]:
    if quantisation == "int8":
        rows = pack_int8(values)
        return rows.codes, rows.scales
    if quantisation == "int4":
        tiles = pack_tiles(values, block)
        return tiles.codes, tiles.scales, tiles.minima
    scales = values.abs().amax(1) / _FP8_MOST
    return (values / scales[:, None]).to(torch.float8_e4m3fn), scales


def _texts(source: Path, checkpoint: Checkpoint) -> dict[str, bytes]:
    if checkpoint.gguf is None:
        return {
            str(path.relative_to(source)): path.read_bytes() for path in (*text_files(source), source / "config.json")
        }
    reader = gguf.GGUFReader(source)
    beside = source.with_suffix(".text.gguf")
    writer = gguf.GGUFWriter(beside, checkpoint.gguf.architecture)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), *field.types[:2])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    data = beside.read_bytes()
    beside.unlink()
    return {"gguf": data}
