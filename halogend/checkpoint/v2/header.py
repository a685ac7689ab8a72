"""The first 4096 bytes of a v2 file.

    0 magic   8 version   12 minimum reader version   16 flags   24 file length   32 metadata offset
    40 metadata length   48 data start   56 sha256 of the metadata   88 sha256 of bytes 0 to 87   120 zeros

These first 120 bytes are the same in every version to come, so a newer file is known for what it is.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.v2.layout import TENSOR_ALIGNMENT
from halogend.checkpoint.v2.rules import broken

MAGIC = b"HALOGEN2"
VERSION = 1
HEADER_BYTES = 4096
MAX_METADATA_BYTES = 64 << 20
MANIFEST, PART = 1, 2
_FIELDS = struct.Struct("<8sIIQQQQQ32s")
_DIGEST_END = _FIELDS.size + 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Sizes and offsets in bytes. `flags` has MANIFEST or PART, or neither: one file that holds all."""

    flags: int
    file_bytes: int
    metadata_bytes: int
    data_start: int
    metadata_sha256: bytes
    version: int = VERSION
    minimum: int = VERSION

    @property
    def is_manifest(self) -> bool:
        return bool(self.flags & MANIFEST)

    @property
    def is_part(self) -> bool:
        return bool(self.flags & PART)

    def encode(self) -> bytes:
        """All 4096 bytes."""
        sizes = (self.file_bytes, HEADER_BYTES, self.metadata_bytes, self.data_start)
        fields = _FIELDS.pack(MAGIC, self.version, self.minimum, self.flags, *sizes, self.metadata_sha256)
        return (fields + hashlib.sha256(fields).digest()).ljust(HEADER_BYTES, b"\0")


def decode_header(raw: bytes, file_bytes: int, path: Path) -> Header:
    """`raw` is what the file begins with, 4096 bytes of it where there are so many; `file_bytes` is its
    size. Raises CheckpointError: rules V2-01 to V2-11."""
    if not raw.startswith(MAGIC):
        raise broken("V2-01", path, f"is no v2 checkpoint: it begins with {raw[:8]!r}")
    if len(raw) < HEADER_BYTES:
        raise broken("V2-02", path, f"the file ends inside the header: it has {file_bytes} bytes")
    fields, digest = raw[: _FIELDS.size], raw[_FIELDS.size : _DIGEST_END]
    if hashlib.sha256(fields).digest() != digest:
        raise broken("V2-03", path, "the header is damaged: its digest does not match")
    _, version, minimum, flags, stated, offset, length, start, metadata_sha256 = _FIELDS.unpack(fields)
    if not 1 <= minimum <= version:
        raise broken("V2-04", path, f"version {version} for readers of version {minimum} on makes no sense")
    if minimum > VERSION:
        what = f"needs a reader of version {minimum} of the format; this release reads version {VERSION}"
        raise broken("V2-05", path, what)
    if any(raw[_DIGEST_END:]):
        raise broken("V2-06", path, f"bytes {_DIGEST_END} to {HEADER_BYTES - 1} are not all zero")
    if flags not in (0, MANIFEST, PART):
        raise broken("V2-07", path, f"has the unknown flags {flags:#x}")
    if file_bytes < stated:
        raise broken("V2-08", path, f"has {file_bytes} bytes of the {stated} that its header says")
    if file_bytes > stated:
        raise broken("V2-09", path, f"has {file_bytes} bytes, more than the {stated} that its header says")
    _check_places(path, offset, length, start, stated)
    return Header(
        flags=flags,
        file_bytes=stated,
        metadata_bytes=length,
        data_start=start,
        metadata_sha256=metadata_sha256,
        version=version,
        minimum=minimum,
    )


def _check_places(path: Path, offset: int, length: int, start: int, file_bytes: int) -> None:
    if offset != HEADER_BYTES or not 2 <= length <= MAX_METADATA_BYTES:
        what = (
            f"the metadata is {length} bytes at byte {offset}; 2 to {MAX_METADATA_BYTES} at {HEADER_BYTES} are wanted"
        )
        raise broken("V2-10", path, what)
    if start % TENSOR_ALIGNMENT or not offset + length <= start <= min(file_bytes, 2 * MAX_METADATA_BYTES):
        what = f"the data starts at byte {start}; a multiple of {TENSOR_ALIGNMENT} behind the metadata is wanted"
        raise broken("V2-11", path, what)
