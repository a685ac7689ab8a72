"""Which format a checkpoint has, by its magic bytes and never by its name."""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path

from halogend.checkpoint.errors import FORMAT_CONTRADICTION, FORMAT_UNKNOWN, CheckpointError
from halogend.checkpoint.files import (
    is_directory,
    is_lfs_pointer,
    is_there,
    lfs_pointer,
    names_in,
    open_regular,
    unreadable,
)

_V2_MAGIC = b"HALOGEN2"
_CONFIG = "config.json"
_HEAD_BYTES = 32
_V2_PART = re.compile(r".+-\d{5}-of-\d{5}\.hgn2", re.DOTALL)  # not to be named, its manifest is
# What a directory holds that is no checkpoint itself, and what to name instead.
_NOT_A_MODEL = (
    ("*.hgn2", "name the .hgn2 file itself"),
    ("*.gguf", "name the .gguf file itself"),
    ("snapshots", "it is the cache of a hub; name one of the directories under snapshots"),
    ("adapter_config.json", "it is an adapter, and adapters are not supported"),
)


def detect_format(path: str | Path) -> str:
    """`gguf`, `v2` or `safetensors`. Raises CheckpointError for anything else, and for what
    cannot be read."""
    path = Path(path)
    if is_directory(path):
        return _directory_format(path)
    with open_regular(path) as file:
        try:
            head = file.read(_HEAD_BYTES)
            size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise unreadable(path, error) from error
    if head.startswith(b"GGUF"):
        return "gguf"
    if head.startswith(_V2_MAGIC):
        return "v2"
    if len(head) > 9 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if is_lfs_pointer(head):
        raise lfs_pointer(path)
    begins = f"it begins with {head[:8]!r}" if head else "it is empty"
    wanted = "a GGUF file, a v2 checkpoint or a Hugging Face directory is wanted"
    raise CheckpointError(FORMAT_UNKNOWN, f"{path}: is no checkpoint of a known format: {begins}; {wanted}")


def _directory_format(path: Path) -> str:
    config = path / _CONFIG
    if is_there(config):
        with open_regular(config):  # which says why it cannot be read
            return "safetensors"
    names = [name for name in names_in(path) if not _V2_PART.fullmatch(name)]
    for pattern, remedy in _NOT_A_MODEL:
        if found := fnmatch.filter(names, pattern):
            what = f"a directory with {found[0]} and without {_CONFIG} is no checkpoint: {remedy}"
            raise CheckpointError(FORMAT_UNKNOWN, f"{path}: {what}")
    raise CheckpointError(FORMAT_UNKNOWN, f"{path}: a directory without {_CONFIG} is no checkpoint")


def resolve_format(path: str | Path, load_format: str) -> str:
    """The format to load `path` with: what its magic bytes say, which must be what `load_format`
    says unless that is `auto`. Raises CheckpointError on a contradiction."""
    found = detect_format(path)
    if load_format not in ("auto", found):
        raise CheckpointError(
            FORMAT_CONTRADICTION, f"{path}: is a {found} checkpoint, but load_format says {load_format}"
        )
    return found
