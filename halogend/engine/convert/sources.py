"""Where a v2 file says it came from: the source's files by their digests, and its tensors that nobody needs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from halogend.checkpoint.checkpoint import CONFIG, Checkpoint
from halogend.checkpoint.files import open_regular, unreadable
from halogend.checkpoint.safetensors import read_shards
from halogend.checkpoint.v2.index import SourceFile

_PIECE_BYTES = 1 << 20


def source_files(checkpoint: Checkpoint) -> tuple[Path, ...]:
    return checkpoint.files if checkpoint.gguf is not None else (*checkpoint.files, checkpoint.path / CONFIG)


def fingerprint(path: Path, advance: Callable[[int], object]) -> SourceFile:
    """Reads all of the file; `advance` is told the bytes. Raises CheckpointError."""
    digest, total = hashlib.sha256(), 0
    piece = memoryview(bytearray(_PIECE_BYTES))
    with open_regular(path) as file:
        try:
            while count := file.readinto(piece):  # type: ignore[attr-defined]  # an unbuffered file has it
                digest.update(piece[:count])
                total += count
                advance(count)
        except OSError as error:
            raise unreadable(path, error) from error
    return SourceFile(name=path.name, bytes=total, sha256=digest.hexdigest())


def dropped_tensors(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Tensors of the source that no weight is made of, by their names there, in the files' order. Raises
    CheckpointError."""
    tensors = read_shards(checkpoint.path).tensors if checkpoint.gguf is None else checkpoint.gguf.tensors
    used = {
        tensor.name
        for weight in checkpoint.weights.values()
        for piece in weight.pieces
        for tensor in piece.encoded.tensors
    }
    return tuple(name for name in tensors if name not in used)
