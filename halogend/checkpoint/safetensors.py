"""The tensors of a safetensors checkpoint: one file, or shards that an index lists.

Which file holds what is checked both ways: every name of the index is in its shard, every tensor
of a shard is in the index under that shard.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from halogend.checkpoint.errors import (
    FILE_UNREADABLE,
    FORMAT_UNKNOWN,
    INDEX_INVALID,
    TENSOR_MISSING,
    CheckpointError,
    shown,
)
from halogend.checkpoint.files import is_directory, is_there, names_in, read_whole
from halogend.checkpoint.json_object import parse_json_object
from halogend.checkpoint.safetensors_header import MAX_HEADER_BYTES, SafetensorsHeader, read_safetensors_header
from halogend.checkpoint.tensor_table import TensorInfo

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True, slots=True)
class Shards:
    """`tensors` by name; each says which of `files` it lies in, and where. `digest` is the sha256 of
    the index and all headers, in hex."""

    files: tuple[Path, ...]
    tensors: Mapping[str, TensorInfo]
    digest: str


def read_shards(path: Path) -> Shards:
    """Reads and checks the headers of the checkpoint at `path`: a directory, or one safetensors file.

    Raises CheckpointError naming the file and the tensor or key.
    """
    if not is_directory(path):
        return _read_files((path,), b"", None)
    if is_there(path / SINGLE_FILE):
        return _read_files((path / SINGLE_FILE,), b"", None)
    index = path / INDEX_FILE
    if not is_there(index):
        raise _nothing_to_read(path)
    raw = read_whole(index, MAX_HEADER_BYTES, INDEX_INVALID)
    weight_map = _weight_map(index, raw)
    files = tuple(path / name for name in sorted(set(weight_map.values())))
    return _read_files(files, raw, weight_map)


def _read_files(files: tuple[Path, ...], index: bytes, weight_map: Mapping[str, str] | None) -> Shards:
    digest = hashlib.sha256(index)
    listed: dict[str, list[str]] = {}
    for name, shard in (weight_map or {}).items():
        listed.setdefault(shard, []).append(name)
    tensors: dict[str, TensorInfo] = {}
    for number, path in enumerate(files):
        header = _read_listed(path, number, is_listed=path.name in listed)
        digest.update(len(header.raw).to_bytes(8, "little") + header.raw)
        for name in sorted(header.tensors.keys() & tensors.keys()):
            other = files[tensors[name].file].name
            raise CheckpointError(INDEX_INVALID, f"{path}: tensor {name!r} is in {other} as well")
        if weight_map is not None:
            _check_against_index(path, header.tensors, weight_map, listed[path.name])
        tensors |= header.tensors
    return Shards(files, MappingProxyType(tensors), digest.hexdigest())


def _read_listed(path: Path, number: int, *, is_listed: bool) -> SafetensorsHeader:
    """The header of file `number`, which the index names, where there is one."""
    try:
        return read_safetensors_header(path, number)
    except CheckpointError as error:
        if error.code == FILE_UNREADABLE and is_listed:
            raise CheckpointError(error.code, f"{error.message} ({INDEX_FILE} names it)") from error
        raise


def _check_against_index(
    path: Path, tensors: Mapping[str, TensorInfo], weight_map: Mapping[str, str], listed: Sequence[str]
) -> None:
    for name in tensors:
        if weight_map.get(name) != path.name:
            told = f"puts it into {weight_map[name]}" if name in weight_map else "does not list it"
            raise CheckpointError(INDEX_INVALID, f"{path}: tensor {name!r} is there, but {INDEX_FILE} {told}")
    for name in listed:
        if name not in tensors:
            raise CheckpointError(
                TENSOR_MISSING, f"{path}: tensor {name!r} is missing, which {INDEX_FILE} puts into this file"
            )


def _weight_map(path: Path, raw: bytes) -> Mapping[str, str]:
    weight_map = parse_json_object(raw, f"{path}: the index", INDEX_INVALID).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(INDEX_INVALID, f"{path}: key 'weight_map' is missing or no JSON object with entries")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not shard.isprintable() or shard in {"", ".", ".."} or set(shard) & set("/\\"):
            raise CheckpointError(
                INDEX_INVALID,
                f"{path}: key 'weight_map': {shown(name)} is in {shown(shard)}, "
                "which is no file name of this directory",
            )
    return weight_map


def _nothing_to_read(directory: Path) -> CheckpointError:
    names = names_in(directory)
    wanted = f"neither {SINGLE_FILE} nor {INDEX_FILE}"
    for suffixes, remedy in (
        ((".safetensors",), f"shards need their index; fetch it, or name the one file {SINGLE_FILE}"),
        ((".gguf",), "give the path of the .gguf file itself"),
        (_PICKLES, "pickled weights are not read; convert them to safetensors first (save_pretrained does)"),
    ):
        found = next((name for name in names if name.endswith(suffixes)), None)
        if found is not None:
            return CheckpointError(FORMAT_UNKNOWN, f"{directory}: holds {found}, but {wanted}: {remedy}")
    return CheckpointError(FORMAT_UNKNOWN, f"{directory}: holds {wanted}")
