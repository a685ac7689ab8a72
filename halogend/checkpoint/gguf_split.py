"""A model split over several GGUF files: which files belong to it, and whether they fit together.

    name-00001-of-00003.gguf   all metadata, split.no 0, split.count 3, split.tensors.count; may hold no tensor
    name-00002-of-00003.gguf   split.no 1, split.count 3, split.tensors.count, and tensors
    name-00003-of-00003.gguf   split.no 2, ...

The names count from 1, the keys from 0, as llama.cpp writes and reads them. A file whose split.count
is 0 (merged again) or 1 is a whole model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from halogend.checkpoint.errors import (
    FILE_UNREADABLE,
    INDEX_INVALID,
    KEY_INVALID,
    SPLIT_INVALID,
    TENSOR_MISSING,
    CheckpointError,
)
from halogend.checkpoint.gguf_metadata import describe
from halogend.checkpoint.gguf_part import Part, read_part
from halogend.checkpoint.tensor_table import TensorInfo

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_ARCHITECTURE = "general.architecture"
_MOST_PARTS = (1 << 16) - 1
_MOST_TENSORS = (1 << 31) - 1
_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def read_parts(path: Path) -> tuple[Part, ...]:
    """The file at `path` and, where it is the first part of a split model, the others beside it.

    Raises CheckpointError naming the file that is missing, broken, of another split or not the first.
    """
    first = read_part(path)
    count = _integer(first, _COUNT, most=_MOST_PARTS) if _COUNT in first.metadata else 0
    if count <= 1:
        return (first,)
    number = _integer(first, _NUMBER, most=_MOST_PARTS)
    if number:
        raise _not_first(path, number, count)
    _integer(first, _TENSORS, most=_MOST_TENSORS)
    others = enumerate(_others(path, count), start=1)
    return (first, *(_read_other(other, index, first) for index, other in others))


def merge_tensors(parts: Sequence[Part]) -> dict[str, TensorInfo]:
    """The tensors of all parts, by name. Raises CheckpointError for a name that is there twice, or
    if they are not as many as the first part says."""
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        for name, tensor in part.tensors.items():
            if (earlier := tensors.get(name)) is not None:
                where = parts[earlier.file].path
                raise CheckpointError(INDEX_INVALID, f"{part.path}: tensor {name!r} is in {where} too")
            tensors[name] = tensor
    if len(parts) > 1 and len(tensors) != (total := parts[0].metadata[_TENSORS]):
        what = f"metadata key {_TENSORS!r} says {total} tensors; its {len(parts)} parts hold {len(tensors)}"
        raise CheckpointError(TENSOR_MISSING, f"{parts[0].path}: {what}")
    return tensors


def _others(first: Path, count: int) -> list[Path]:
    found = _NAME.fullmatch(first.name)
    if found is None or (int(found["number"]), int(found["count"])) != (1, count):
        raise CheckpointError(
            SPLIT_INVALID,
            f"{first}: is the first of {count} parts, but its name does not end in '-00001-of-{count:05}.gguf', by "
            f"which the others are found",
        )
    return [_beside(first, found["stem"], number, count) for number in range(2, count + 1)]


def _beside(path: Path, stem: str, number: int, count: int) -> Path:
    return path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf")


def _read_other(path: Path, index: int, first: Part) -> Part:
    """Part `index` (from 0), which must belong to `first`."""
    count = first.metadata[_COUNT]
    try:
        part = read_part(path, index)
    except CheckpointError as error:
        if error.code == FILE_UNREADABLE:
            message = f"{error.message} (part {index + 1} of {count} of {first.path})"
            raise CheckpointError(error.code, message) from error
        raise
    wanted = {_NUMBER: index, _COUNT: count, _TENSORS: first.metadata[_TENSORS]}
    for key, value in wanted.items():
        if (found := _integer(part, key, most=_MOST_TENSORS)) != value:
            raise _foreign(part, key, str(found), str(value), first)
    own = part.metadata.get(_ARCHITECTURE)
    expected = first.metadata.get(_ARCHITECTURE)
    if own is not None and own != expected:
        raise _foreign(part, _ARCHITECTURE, describe(own), "missing" if expected is None else describe(expected), first)
    return part


def _foreign(part: Part, key: str, found: str, wanted: str, first: Part) -> CheckpointError:
    return CheckpointError(
        SPLIT_INVALID,
        f"{part.path}: is no part of the model of {first.path}: metadata key {key!r} is {found}, not {wanted}",
    )


def _not_first(path: Path, number: int, count: int) -> CheckpointError:
    found = _NAME.fullmatch(path.name)
    which = f"name the first, {_beside(path, found['stem'], 1, count)}" if found else "name the first of them"
    return CheckpointError(SPLIT_INVALID, f"{path}: is part {number + 1} of {count} ({_NUMBER!r}); {which}")


def _integer(part: Part, key: str, most: int) -> int:
    value = part.metadata.get(key)
    if value is None:
        raise CheckpointError(KEY_INVALID, f"{part.path}: metadata key {key!r} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        what = f"is {describe(value)}; a whole number from 0 to {most} is wanted"
        raise CheckpointError(KEY_INVALID, f"{part.path}: metadata key {key!r} {what}")
    return value
