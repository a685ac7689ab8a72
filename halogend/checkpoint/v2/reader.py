"""Opening a v2 checkpoint: every rule but those of the data itself is checked, and no weight is read."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from halogend.checkpoint.errors import FORMAT_UNKNOWN, CheckpointError
from halogend.checkpoint.files import is_there, links_from, open_regular
from halogend.checkpoint.stored import Weight
from halogend.checkpoint.v2.entries import TEXT_PREFIX, Entry
from halogend.checkpoint.v2.geometry_rules import check_geometry
from halogend.checkpoint.v2.header import HEADER_BYTES, Header, decode_header
from halogend.checkpoint.v2.index import Metadata, decode_metadata, decode_part, set_digest
from halogend.checkpoint.v2.placing import check_chunks, check_places
from halogend.checkpoint.v2.reading import pieces_at, read_at
from halogend.checkpoint.v2.rules import broken
from halogend.checkpoint.v2.temporary import is_temporary
from halogend.checkpoint.v2.weights import check_text, find

_PART_NAME = re.compile(r"(.+)-\d{5}-of-\d{5}(\.[^.]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class V2File:
    """`path` was named, and its header is `header`. `files[i]` is where entries of part i lie, with the
    header `headers[i]`: the file itself, or the parts of a manifest. `entries` are in the order of the
    files, `weights` in that of the inventory. `digest` covers every header and the metadata: with the
    same digest it is the same checkpoint, data included."""

    path: Path
    header: Header
    files: tuple[Path, ...]
    headers: tuple[Header, ...]
    metadata: Metadata
    entries: Mapping[str, Entry]
    weights: Mapping[str, Weight]
    digest: str

    @property
    def all_files(self) -> tuple[Path, ...]:
        """Those with data, and the manifest where there is one."""
        return (*self.files, self.path) if self.header.is_manifest else self.files

    @property
    def text_names(self) -> tuple[str, ...]:
        """What there is to read for the text process, without the prefix `text/`."""
        return tuple(name.removeprefix(TEXT_PREFIX) for name, entry in self.entries.items() if entry.is_text)

    def text(self, name: str) -> bytes:
        """All of one of `text_names`, its digest checked. Raises CheckpointError; KeyError for another name."""
        entry = self.entries[TEXT_PREFIX + name]
        path = self.files[entry.part]
        with open_regular(path) as file:
            raw = read_at(file.fileno(), path, entry.offset, entry.nbytes)
        if hashlib.sha256(raw).hexdigest() != entry.sha256:
            raise broken("V2-40", path, f"{entry.name!r} is damaged: its digest does not match")
        return raw


def open_v2(path: str | Path) -> V2File:
    """Reads and checks header and metadata of the file at `path`, and of the parts beside a manifest.

    Raises CheckpointError naming the file and the rule's key or tensor (docs/checkpoint-v2.md).
    """
    path = Path(path)
    if is_temporary(path):
        raise CheckpointError(FORMAT_UNKNOWN, f"{path}: is what a conversion writes, or was left by one that was ended")
    return _opened(path, lambda count: _parts_of(path, count))


def open_unmoved(path: Path, parts: tuple[Path, ...] = ()) -> V2File:
    """As `open_v2`, of what a writer has sealed and not moved to its place: `parts` are those of a manifest, whatever
    they are called."""
    return _opened(path, lambda _: parts)


def _opened(path: Path, parts_of: Callable[[int], tuple[Path, ...]]) -> V2File:
    header, raw = _read_front(path)
    if header.is_part:
        _refuse_part(path, raw)
    metadata = decode_metadata(raw, path)
    check_geometry(metadata.model, path)
    if not metadata.chunks or (len(metadata.chunks) > 1 and not header.is_manifest):
        raise broken("V2-26", path, f"has digests of the chunks of {len(metadata.chunks)} files")
    files: tuple[Path, ...] = (path,)
    headers: tuple[Header, ...] = (header,)
    if header.is_manifest:
        files = parts_of(len(metadata.chunks))
        headers = _open_parts(path, header, metadata, files)
    extents = [(each.data_start, each.file_bytes) for each in headers]
    check_places(metadata.entries, extents, files)
    check_chunks(metadata.chunks, extents, path)
    weights = find(metadata.model, metadata.entries, path)
    check_text(metadata.text, metadata.entries, path)
    return V2File(
        path=path,
        header=header,
        files=files,
        headers=headers,
        metadata=metadata,
        entries=MappingProxyType({entry.name: entry for entry in metadata.entries}),
        weights=MappingProxyType(dict(weights)),
        digest=_digest((header, *headers) if header.is_manifest else headers),
    )


def part_names(path: Path, count: int) -> tuple[Path, ...]:
    """Where the parts of the manifest at `path` lie, which is no symlink."""
    return tuple(path.with_name(f"{path.stem}-{i:05}-of-{count:05}{path.suffix}") for i in range(1, count + 1))


def _parts_of(path: Path, count: int) -> tuple[Path, ...]:
    """Beside the name that was given; where that is a symlink and no part is there, beside what it names: the manifest
    alone may be linked to, or each file, as in a hub's cache."""
    named = (part_names(each, count) for each in links_from(path))
    return next((names for names in named if any(map(is_there, names))), part_names(path, count))


def _read_front(path: Path) -> tuple[Header, bytes]:
    """The header, and the metadata as it lies."""
    with open_regular(path) as file:
        descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
        header = decode_header(read_at(descriptor, path, 0, min(size, HEADER_BYTES)), size, path)
        raw = read_at(descriptor, path, HEADER_BYTES, header.metadata_bytes)
        if hashlib.sha256(raw).digest() != header.metadata_sha256:
            raise broken("V2-12", path, "the metadata is damaged: its digest does not match")
        end = HEADER_BYTES + header.metadata_bytes
        for piece in pieces_at(descriptor, path, end, header.data_start - end):
            if bytes(piece).count(0) != len(piece):
                what = f"bytes between the metadata and the data at {header.data_start} are not all zero"
                raise broken("V2-13", path, what)
    return header, raw


def _refuse_part(path: Path, raw: bytes) -> None:
    part = decode_part(raw, path)
    named = _PART_NAME.fullmatch(path.name)
    manifest = f"{named[1]}{named[2] or ''}" if named else "its manifest"
    raise broken("V2-34", path, f"is part {part.part + 1} of {part.of} of a checkpoint; name {manifest}")


def _open_parts(path: Path, header: Header, metadata: Metadata, files: Sequence[Path]) -> tuple[Header, ...]:
    """Raises CheckpointError: rules V2-35 to V2-38."""
    if header.data_start != header.file_bytes:
        raise broken("V2-35", path, "is a manifest with data of its own")
    count, headers = len(metadata.chunks), []
    wanted = set_digest(metadata.entries)
    for index, file in enumerate(files):
        if not is_there(file):
            raise broken("V2-36", path, f"part {index + 1} of {count} is missing: {file.name}")
        front, raw = _read_front(file)
        if not front.is_part:
            raise broken("V2-37", file, "is no part of a checkpoint, and lies where one is wanted")
        part = decode_part(raw, file)
        if (part.part, part.of) != (index, count):
            what = f"says that it is part {part.part + 1} of {part.of}; {index + 1} of {count} is wanted"
            raise broken("V2-37", file, what)
        if part.set != wanted:
            raise broken("V2-38", file, f"belongs to another manifest than {path.name}")
        headers.append(front)
    return tuple(headers)


def _digest(headers: Sequence[Header]) -> str:
    return hashlib.sha256(b"".join(header.encode() for header in headers)).hexdigest()
