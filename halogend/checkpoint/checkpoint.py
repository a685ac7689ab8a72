"""A checkpoint, whatever its format: its files, its model's shape and where each weight lies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.errors import (
    ARCHITECTURE_UNSUPPORTED,
    FORMAT_UNKNOWN,
    KEY_INVALID,
    TENSOR_MISMATCH,
    TYPE_UNSUPPORTED,
    CheckpointError,
    shown,
)
from halogend.checkpoint.families import BY_GGUF, BY_HF, Family
from halogend.checkpoint.files import is_directory, read_whole
from halogend.checkpoint.formats import resolve_format
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.gguf import ArrayRef, GgufHeader, read_header
from halogend.checkpoint.gguf_parameters import GgufParameters
from halogend.checkpoint.gguf_scales import with_scales
from halogend.checkpoint.gguf_types import DECODABLE, GgmlType
from halogend.checkpoint.hf_config import HfParameters
from halogend.checkpoint.inventory import find_weights
from halogend.checkpoint.json_object import MAX_SETTINGS_BYTES, parse_json_object
from halogend.checkpoint.names import GgufNames, HfNames
from halogend.checkpoint.quantisation import describe, encode
from halogend.checkpoint.safetensors import read_shards
from halogend.checkpoint.stored import Weight
from halogend.checkpoint.surplus import Surplus, considered
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.checkpoint.text_part import text_config, text_tensors
from halogend.checkpoint.v2.reader import V2File, open_v2

CONFIG = "config.json"
_UNROUNDED = frozenset({"F64", "F32", "F16", "BF16"})
_V2_NUMBERS = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}  # as the other formats call them


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`files[i]` is the file that a tensor of number i lies in. `weights` are by the names of
    `inventory`. `adjacent_pairs`: rows of Q and K lie with the two values of a rotary pair side by
    side. `norm_offset` is to be added to norm weights. `quantisation` says how the matrices are stored.
    `digest` is over all headers: two checkpoints with one digest have the same metadata and tensor
    table. `gguf` is the header of a GGUF file, `v2` that of a v2 checkpoint with its index. `surplus` is what it was
    opened with.
    """

    path: Path
    format: str
    files: tuple[Path, ...]
    geometry: Geometry
    weights: Mapping[str, Weight]
    adjacent_pairs: bool
    norm_offset: float
    quantisation: str
    digest: str
    gguf: GgufHeader | None = None
    v2: V2File | None = None
    surplus: Surplus = Surplus.REFUSED

    @property
    def is_quantised(self) -> bool:
        """Whether matrices were rounded to fewer than 16 bits before, if only in what was converted."""
        before = self.quantisation if self.v2 is None else self.v2.metadata.source.quantisation
        return not {self.quantisation, before} <= _UNROUNDED


def open_checkpoint(path: str | Path, load_format: str = "auto", *, surplus: Surplus = Surplus.REFUSED) -> Checkpoint:
    """Reads every header and checks that the model is whole. Raises CheckpointError naming the file and
    the key or tensor."""
    found = resolve_format(path, load_format)
    if found == "v2":
        return _open_v2(Path(path))
    return _open_gguf(Path(path), surplus) if found == "gguf" else _open_directory(Path(path), surplus)


def _open_gguf(path: Path, surplus: Surplus) -> Checkpoint:
    header = read_header(path)
    family = BY_GGUF.get(header.architecture)
    if family is None:
        message = f"{path}: architecture {shown(header.architecture)} is not supported; supported are {_known(BY_GGUF)}"
        raise CheckpointError(ARCHITECTURE_UNSUPPORTED, message)
    geometry = family.read(GgufParameters(header))
    stored = with_scales(considered(header.tensors, surplus), header.files)
    weights = find_weights(geometry, stored, GgufNames(), path, header.files, surplus)
    _check_types(header.tensors, path)
    _check_vocabulary(header, geometry)
    return Checkpoint(
        path=path,
        format="gguf",
        files=header.files,
        geometry=geometry,
        weights=weights,
        adjacent_pairs=family.adjacent_pairs,
        norm_offset=0.0,
        quantisation=_main_type(header.tensors),
        digest=header.digest,
        gguf=header,
        surplus=surplus,
    )


def _open_directory(path: Path, surplus: Surplus) -> Checkpoint:
    if not is_directory(path):
        message = f"{path}: is weights alone; name the directory that has them and {CONFIG}"
        raise CheckpointError(FORMAT_UNKNOWN, message)
    config_path = path / CONFIG
    raw = read_whole(config_path, MAX_SETTINGS_BYTES)
    config = parse_json_object(raw, f"{config_path}:")
    family = _family(config_path, config.get("architectures"))
    shards = read_shards(path)
    values, tensors, section = config, considered(shards.tensors, surplus), ""
    if part := family.text_part:
        values, section = text_config(config_path, config, part), f"{part.section}."
        tensors = text_tensors(tensors, part, shards.files)
    geometry = family.read(HfParameters(config_path, {**family.defaults, **values}, family.keys, section))
    stored = encode(tensors, config.get("quantization_config"), config_path, shards.files)
    weights = find_weights(geometry, stored, HfNames(family), path, shards.files, surplus)
    return Checkpoint(
        path=path,
        format="safetensors",
        files=shards.files,
        geometry=geometry,
        weights=weights,
        adjacent_pairs=False,
        norm_offset=family.norm_offset,
        quantisation=describe(stored.values()),
        digest=hashlib.sha256(raw + shards.digest.encode()).hexdigest(),
        surplus=surplus,
    )


def _open_v2(path: Path) -> Checkpoint:
    file = open_v2(path)
    quantisation = file.metadata.quantisation
    return Checkpoint(
        path=path,
        format="v2",
        files=file.all_files,
        geometry=file.metadata.model,
        weights=file.weights,
        adjacent_pairs=True,
        norm_offset=0.0,
        quantisation=_V2_NUMBERS.get(quantisation, quantisation),
        digest=file.digest,
        v2=file,
    )


def _family(path: Path, architectures: object) -> Family:
    """By `architectures`, which names the class that the weights were saved from."""
    if architectures is None:
        raise CheckpointError(KEY_INVALID, f"{path}: key 'architectures' is missing")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise CheckpointError(
            KEY_INVALID, f"{path}: key 'architectures' is {shown(architectures)}; a list of one name is wanted"
        )
    family = BY_HF.get(architectures[0])
    if family is None:
        message = f"{path}: architecture {shown(architectures[0])} is not supported; supported are {_known(BY_HF)}"
        raise CheckpointError(ARCHITECTURE_UNSUPPORTED, message)
    return family


def _known(table: Mapping[str, Family]) -> str:
    return ", ".join(sorted(table))


def _check_types(tensors: Mapping[str, TensorInfo], path: Path) -> None:
    for name, tensor in tensors.items():
        if tensor.type not in DECODABLE:
            raise CheckpointError(
                TYPE_UNSUPPORTED, f"{path}: tensor {name!r} is {tensor.type.name}, which cannot be decoded"
            )
        if len(tensor.shape) == 1 and tensor.type.block_elements > 1:
            raise CheckpointError(
                TYPE_UNSUPPORTED,
                f"{path}: tensor {name!r} is a vector of {tensor.type.name} blocks; numbers are wanted",
            )


def _check_vocabulary(header: GgufHeader, geometry: Geometry) -> None:
    """An embedding may have rows to spare, never fewer than there are tokens."""
    tokens = header.metadata.get("tokenizer.ggml.tokens", ())
    count = tokens.count if isinstance(tokens, ArrayRef) else len(tokens) if isinstance(tokens, tuple) else 0
    if count > geometry.vocab:
        message = f"tensor 'token_embd.weight' has {geometry.vocab} rows for the {count} tokens of the tokenizer"
        raise CheckpointError(TENSOR_MISMATCH, f"{header.path}: {message}")


def _main_type(tensors: Mapping[str, TensorInfo]) -> str:
    """The type that most bytes of matrices are in."""
    totals: dict[str, int] = {}
    for tensor in tensors.values():
        if len(tensor.shape) > 1:
            totals[tensor.type.name] = totals.get(tensor.type.name, 0) + tensor.nbytes
    return max(totals, key=totals.__getitem__, default=GgmlType.F32.name)
