"""What the text process reads, as it goes into a v2 file: the files of a directory, or a GGUF file's keys.

The keys become a GGUF file without tensors, so that one reader serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from halogend.checkpoint.checkpoint import CONFIG, Checkpoint
from halogend.checkpoint.cursor import Cursor
from halogend.checkpoint.errors import TOKENIZER_INVALID
from halogend.checkpoint.files import open_regular, read_whole
from halogend.checkpoint.gguf_metadata import read_metadata
from halogend.checkpoint.gguf_part import MAGIC
from halogend.checkpoint.tokenizer_files import text_files
from halogend.checkpoint.v2.index import TextKind
from halogend.checkpoint.v2.weights import MAX_TEXT_BYTES

_SPLIT = "split."  # of a model in several files, which the new one is not


def texts_of(checkpoint: Checkpoint) -> tuple[TextKind, Mapping[str, bytes]]:
    """Contents by name. Raises CheckpointError where there is no tokenizer or a file cannot be read."""
    if checkpoint.gguf is not None:
        return "gguf", {"gguf": gguf_keys_of(checkpoint.gguf.path)}
    directory = checkpoint.path
    paths = (*text_files(directory), directory / CONFIG)
    found = {
        path.relative_to(directory).as_posix(): read_whole(path, MAX_TEXT_BYTES, TOKENIZER_INVALID) for path in paths
    }
    return "files", {name: raw for name, raw in found.items() if raw}


def gguf_keys_of(path: Path) -> bytes:
    """The metadata of the GGUF file at `path` as such a file of its own. Raises CheckpointError."""
    with open_regular(path) as file:
        cursor = Cursor(file, path)
        cursor.skip(len(MAGIC), "the magic bytes")
        version = cursor.u32("the version")
        cursor.u64("the tensor count")
        kept = []
        for _ in range(cursor.u64("the metadata count")):
            start = cursor.position
            (key,) = read_metadata(cursor, 1)
            if not key.startswith(_SPLIT):
                kept.append(bytes(memoryview(cursor.data)[start : cursor.position]))
    counts = (0).to_bytes(8, "little") + len(kept).to_bytes(8, "little")
    return MAGIC + version.to_bytes(4, "little") + counts + b"".join(kept)
