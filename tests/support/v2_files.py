"""Tiny v2 checkpoints of random bytes, and edits of them that keep every digest but the wanted one.

path = write_v2(tmp_path / "m.hgn2", quantisation="int4")
edited(path, metadata=lambda document: document["tensors"].pop())    the header's digests are made anew
edited(path, header={"flags": 8})
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from halogend.checkpoint.geometry import Experts, Geometry
from halogend.checkpoint.inventory import wanted_weights
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.rope import Rope, plain
from halogend.checkpoint.v2.index import Quantisation, Source, SourceFile
from halogend.checkpoint.v2.layout import BYTES, ROW, ROW_FP8, ROW_INT8, TILED_INT4
from halogend.checkpoint.v2.writer import Wanted, Writer

HEAD = struct.Struct("<8sIIQQQQQ32s")
FIELDS = ("magic", "version", "minimum", "flags", "file_bytes", "offset", "length", "start", "sha256")
MATRICES: Mapping[Quantisation, tuple[PlainType, str]] = {
    "fp32": (PlainType.F32, ROW),
    "fp16": (PlainType.F16, ROW),
    "bf16": (PlainType.BF16, ROW),
    "fp8": (PlainType.F8_E4M3, ROW_FP8),
    "int8": (PlainType.I8, ROW_INT8),
    "int4": (PlainType.U8, TILED_INT4),
}
TEXT = {"tokenizer.json": b'{"model": {}}', "config.json": b'{"eos_token_id": 1}', "chat_template.jinja": b"{{ 1 }}"}
SOURCE = Source(
    format="safetensors",
    quantisation="BF16",
    files=(SourceFile(name="model.safetensors", bytes=10, sha256="ab" * 32),),
)


def tiny_geometry(**changes: Any) -> Geometry:
    """Two layers, 12 heads over 6, every size a multiple of 2, 3 and 32."""
    fields: dict[str, Any] = {
        "architecture": "llama",
        "layers": 2,
        "hidden": 96,
        "heads": 12,
        "kv_heads": 6,
        "head_dim": 32,
        "ffn": 192,
        "vocab": 60,
        "context_length": 128,
        "rms_eps": 1e-5,
        "windows": (None, 16),
        "ropes": (plain(10_000.0, 32),),
        "rope_of": (0, 0),
        "query_scale": 32**-0.5,
        "tied_embeddings": True,
    }
    return Geometry(**{**fields, **changes})


def rich_geometry() -> Geometry:
    """As much as a geometry can say: experts, biases, norms, divisors beyond a context."""
    beyond = Rope(plain(10_000.0, 32).frequencies, 1.5, divisors="rope_factors_long")
    rope = Rope(
        plain(10_000.0, 32).frequencies, divisors="rope_factors_short", original_context=64, beyond=beyond, made_for=128
    )
    return tiny_geometry(
        architecture="qwen3_moe",
        ropes=(rope, plain(1_000_000.0, 32)),
        rope_of=(0, 1),
        tied_embeddings=False,
        activation="gelu_tanh",
        attention_softcap=50.0,
        logits_softcap=30.0,
        qk_norm=True,
        qkv_bias=True,
        output_bias=True,
        post_norms=True,
        experts=Experts(3, 2, 96, True, (False, True)),
    )


def wanted_of(model: Geometry, quantisation: Quantisation, text: Mapping[str, bytes]) -> list[Wanted]:
    """Matrices of layers as `quantisation` has them, the tables of the vocabulary in 16 bits, vectors in 32."""
    dtype, layout = MATRICES[quantisation]
    found = []
    for each in wanted_weights(model):
        if each.columns == 1:
            found.append(Wanted(each.name, PlainType.F32, (each.rows,), ROW))
        elif each.name in ("token_embd", "output") and layout != ROW:
            found.append(Wanted(each.name, PlainType.BF16, (each.rows, each.columns), ROW))
        else:
            found.append(Wanted(each.name, dtype, (each.rows, each.columns), layout))
    return found + [Wanted(f"text/{name}", PlainType.U8, (len(data),), BYTES) for name, data in text.items()]


def write_v2(
    path: Path,
    *,
    model: Geometry | None = None,
    quantisation: Quantisation = "bf16",
    text: Mapping[str, bytes] = TEXT,
    seed: int = 0,
    dropped: Sequence[str] = ("optimizer.step",),
    **options: Any,
) -> Path:
    """`options` are of the Writer."""
    model = tiny_geometry() if model is None else model
    source = random.Random(seed)
    with Writer(path, model=model, quantisation=quantisation, **options) as writer:
        for entry in writer.plan(wanted_of(model, quantisation, text)):
            data = text[entry.name.removeprefix("text/")] if entry.is_text else source.randbytes(entry.nbytes)
            writer.write(entry.name, 0, data)
        writer.finish("gguf" if "gguf" in text else "files", SOURCE, dropped, threads=1)
    return path


def copy_v2(path: Path, model: Geometry | None = None, quantisation: Quantisation = "bf16") -> Path:
    """As `write_v2`, from memory after the first."""
    path.write_bytes(_written(tiny_geometry() if model is None else model, quantisation))
    return path


@cache
def _written(model: Geometry, quantisation: Quantisation) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_v2(Path(folder) / "m.hgn2", model=model, quantisation=quantisation).read_bytes()


def read_parts(raw: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """The header's fields, the metadata as it lies, and the data."""
    fields = dict(zip(FIELDS, HEAD.unpack_from(raw), strict=True))
    return fields, raw[4096 : 4096 + fields["length"]], raw[fields["start"] :]


def edited(
    path: Path,
    *,
    metadata: Callable[[dict[str, Any]], object] | bytes | None = None,
    header: Mapping[str, Any] | None = None,
    data: Callable[[bytearray], object] | None = None,
) -> Path:
    """Edits the document and the data in place, then the header's fields, with lengths and digests (of
    the metadata and the header, not of the data) that fit."""
    fields, raw, content = read_parts(path.read_bytes())
    if isinstance(metadata, bytes):
        raw = metadata
    elif metadata is not None:
        document = json.loads(raw)
        metadata(document)
        raw = json.dumps(document).encode()
    content = bytearray(content)
    if data is not None:
        data(content)
    start = max(fields["start"], -(-(4096 + len(raw)) // 4096) * 4096)
    fields |= {"length": len(raw), "sha256": hashlib.sha256(raw).digest()}
    fields |= {"file_bytes": start + len(content), "start": start, **(header or {})}
    path.write_bytes(encoded_header(fields) + raw.ljust(start - 4096, b"\0") + content)
    return path


def encoded_header(fields: Mapping[str, Any]) -> bytes:
    """All 4096 bytes, the digest included."""
    packed = HEAD.pack(*(fields[name] for name in FIELDS))
    return (packed + hashlib.sha256(packed).digest()).ljust(4096, b"\0")


def flipped(path: Path, position: int, mask: int = 1) -> Path:
    """One byte of the file with the bits of `mask` turned."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))
    return path
