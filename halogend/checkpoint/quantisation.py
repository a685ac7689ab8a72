"""How each matrix of a Hugging Face checkpoint is stored, from its tensors' names and `quantization_config`.

What the configuration says and what the tensors are must agree: either of them alone could be read
as something else, and wrong numbers look like a bad model, not like an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from halogend.checkpoint.errors import (
    KEY_INVALID,
    TENSOR_MISMATCH,
    TENSOR_MISSING,
    TYPE_UNSUPPORTED,
    CheckpointError,
    shown,
)
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.quantisation_config import (
    SECTION,
    AwqScheme,
    Fp8Scheme,
    GptqScheme,
    read_scheme,
)
from halogend.checkpoint.stored import Awq, Encoded, Fp8, Gptq, Plain, RowFp8, RowInt8, Scaled, TiledInt4
from halogend.checkpoint.tensor_table import TensorInfo

_FLOATS = (PlainType.F64, PlainType.F32, PlainType.F16, PlainType.BF16)
_SCALES = (PlainType.F32, PlainType.F16, PlainType.BF16)
_EIGHT_BITS = (PlainType.F8_E4M3, PlainType.F8_E5M2)
_INT4_PARTS = (".qweight", ".qzeros", ".scales", ".g_idx")
_FP8_SCALES = ("_scale_inv", "_scale")  # behind the weight's own name
# Of activations, queries, keys and values, none of which is kept in eight bits here.
_FP8_OTHERS = (
    ".input_scale",
    ".activation_scale",
    ".q_scale",
    ".k_scale",
    ".v_scale",
    ".kv_scale",
    ".prob_scale",
)
_QUANTISED = (*_INT4_PARTS, ".weight_scale", "_scale_inv", ".weight_packed", ".biases", ".absmax", ".quant_map")


def encode(
    tensors: Mapping[str, TensorInfo], config: object, path: Path, files: Sequence[Path] = ()
) -> dict[str, Encoded]:
    """Each stored matrix by the name that it has unquantised ("model.layers.0.mlp.up_proj.weight").

    `config` is config.json's section `quantization_config`, None where it has none; `path` is what
    messages about it begin with, `files` those about a tensor (`path` without them). Raises
    CheckpointError naming the tensor or key.
    """
    if config is not None and not isinstance(config, dict):
        raise CheckpointError(KEY_INVALID, f"{path}: key {SECTION!r} is {shown(config)}, no JSON object")
    return _Encoder(tensors, path, config, files).encode()


def describe(encoded: Iterable[Encoded]) -> str:
    """In a few words what most quantised bytes are, else the type of most bytes: "awq int4 g128", "BF16"."""
    weights: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    int4: list[Gptq | Awq] = []
    for matrix in encoded:
        counter = plain if isinstance(matrix, Plain) else weights
        counter[_encoding_of(matrix)] += sum(tensor.nbytes for tensor in matrix.tensors)
        if isinstance(matrix, Gptq | Awq):
            int4.append(matrix)
    most = (weights or plain).most_common(1)
    words = most[0][0] if most else "nothing"
    return f"{words} {_groups_of(int4)}" if int4 else words


def _encoding_of(matrix: Encoded) -> str:
    match matrix:
        case Plain() | Scaled():
            return matrix.tensors[0].type.name
        case Fp8():
            block = "per tensor" if matrix.block is None else "{}x{}".format(*matrix.block)
            return f"fp8 {matrix.weight.type.name[3:].lower()} {block}"
        case Gptq() | Awq():
            return f"{type(matrix).__name__.lower()} int4"
        case RowInt8() | RowFp8() | TiledInt4():
            return {RowInt8: "int8", RowFp8: "fp8", TiledInt4: "int4"}[type(matrix)]


def _groups_of(matrices: Iterable[Gptq | Awq]) -> str:
    """One scheme's matrices have one group, or each its own width."""
    groups = {matrix.group for matrix in matrices}
    return f"g{groups.pop()}" if len(groups) == 1 else "one group a row"


class _Encoder:
    """Turns a table of tensors into one of matrices; used once, and the only writer of its table."""

    def __init__(
        self, tensors: Mapping[str, TensorInfo], path: Path, config: Mapping[str, Any] | None, files: Sequence[Path]
    ) -> None:
        self._tensors = tensors
        self._path = path
        self._files = files
        self._scheme = None if config is None else read_scheme(config, path)
        self._stated = f"has no {SECTION!r}" if config is None else f"says {config['quant_method']}"
        self._used: set[str] = set()

    def encode(self) -> dict[str, Encoded]:
        match self._scheme:
            case AwqScheme() | GptqScheme():
                quantised = self._int4(self._scheme)
            case Fp8Scheme():
                quantised = self._fp8(self._scheme)
            case None:
                quantised = {}
        if self._scheme is not None and not quantised:
            raise CheckpointError(
                TENSOR_MISSING, f"{self._path}: key {SECTION!r} {self._stated}, but no tensor is quantised"
            )
        plain = {name: self._plain(tensor) for name, tensor in self._tensors.items() if name not in self._used}
        for name in sorted(quantised.keys() & plain.keys()):
            raise self._bad(name, "is there both quantised and not")
        return {**plain, **quantised}

    def _plain(self, tensor: TensorInfo) -> Plain:
        if tensor.name.endswith(_QUANTISED) or tensor.type in _EIGHT_BITS:
            what = f"({tensor.type.name}) is part of a quantised matrix, but the configuration {self._stated}"
            raise self._bad(tensor.name, what, KEY_INVALID)
        if tensor.type not in _FLOATS and tensor.name.endswith(".weight"):
            raise self._bad(tensor.name, f"is {tensor.type.name}, of which no weight can be made", TYPE_UNSUPPORTED)
        return Plain(tensor)

    def _int4(self, scheme: AwqScheme | GptqScheme) -> dict[str, Encoded]:
        modules = {name.removesuffix(".qweight"): None for name in self._tensors if name.endswith(".qweight")}
        for name in self._tensors:
            module, _, part = name.rpartition(".")
            if f".{part}" in _INT4_PARTS and module not in modules:
                raise self._bad(f"{module}.qweight", f"is missing, but {name!r} is there", TENSOR_MISSING)
        if isinstance(scheme, AwqScheme):
            return {f"{module}.weight": self._awq(module, scheme) for module in modules}
        return {f"{module}.weight": self._gptq(module, scheme) for module in modules}

    def _awq(self, module: str, scheme: AwqScheme) -> Awq:
        qweight = self._part(f"{module}.qweight", PlainType.I32)
        columns, eights = self._matrix(qweight)
        group = self._group(qweight, columns, scheme.group)
        if columns % group:
            raise self._bad(qweight.name, f"has {columns} columns, no multiple of the group {group}")
        groups = columns // group
        scales = self._part(f"{module}.scales", *_SCALES)
        self._shape(scales, (groups, eights * 8), qweight)
        qzeros = None
        if scheme.zero_point or f"{module}.qzeros" in self._tensors:
            qzeros = self._part(f"{module}.qzeros", PlainType.I32)
            self._shape(qzeros, (groups, eights), qweight)
        return Awq(qweight, qzeros, scales, group)

    def _gptq(self, module: str, scheme: GptqScheme) -> Gptq:
        qweight = self._part(f"{module}.qweight", PlainType.I32)
        eights, rows = self._matrix(qweight)
        columns = eights * 8
        group = self._group(qweight, columns, scheme.group)
        groups = -(-columns // group)
        if rows % 8:
            raise self._bad(qweight.name, f"has {rows} rows, no multiple of 8")
        scales = self._part(f"{module}.scales", *_SCALES)
        self._shape(scales, (groups, rows), qweight)
        qzeros = self._part(f"{module}.qzeros", PlainType.I32)
        self._shape(qzeros, (groups, rows // 8), qweight)
        g_idx = None
        if (scheme.act_order and groups > 1) or f"{module}.g_idx" in self._tensors:
            g_idx = self._part(f"{module}.g_idx", PlainType.I32)
            self._shape(g_idx, (columns,), qweight)
        return Gptq(qweight, qzeros, scales, g_idx, group, scheme.zero_offset, scheme.zero_carry)

    def _fp8(self, scheme: Fp8Scheme) -> dict[str, Encoded]:
        self._used.update(name for name in self._tensors if name.endswith(_FP8_OTHERS))
        quantised: dict[str, Encoded] = {}
        for name, weight in self._tensors.items():
            scales = [name + suffix for suffix in _FP8_SCALES if name + suffix in self._tensors]
            if weight.type not in _EIGHT_BITS:
                if scales:
                    raise self._bad(name, f"is {weight.type.name}, but there is {scales[0]!r}")
                continue
            if not scales:
                raise self._bad(
                    name + _FP8_SCALES[0], f"is missing, but {name!r} is {weight.type.name}", TENSOR_MISSING
                )
            self._used.add(name)
            scale = self._part(scales[0], *_SCALES)
            self._check_fp8_scale(weight, scale, scheme.block)
            quantised[name] = Fp8(weight, scale, scheme.block)
        return quantised

    def _check_fp8_scale(self, weight: TensorInfo, scale: TensorInfo, block: tuple[int, int] | None) -> None:
        if len(weight.shape) < 2:
            raise self._bad(weight.name, f"has shape {list(weight.shape)}, no matrix")
        if block is None:
            if scale.elements != 1:
                raise self._bad(
                    scale.name,
                    f"has shape {list(scale.shape)}, but '{SECTION}.weight_block_size' is absent: one scale is wanted",
                )
            return
        *stack, rows, columns = weight.shape
        if stack and rows % block[0]:
            raise self._bad(weight.name, f"has {rows} rows a matrix, no multiple of the block's {block[0]}")
        self._shape(scale, (*stack, -(-rows // block[0]), -(-columns // block[1])), weight)

    def _part(self, name: str, *kinds: PlainType) -> TensorInfo:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise self._bad(name, f"is missing; the configuration {self._stated}", TENSOR_MISSING)
        if tensor.type not in kinds:
            wanted = " or ".join(kind.label for kind in kinds)
            raise self._bad(name, f"is {tensor.type.name}, not {wanted}")
        self._used.add(name)
        return tensor

    def _matrix(self, tensor: TensorInfo) -> tuple[int, int]:
        if len(tensor.shape) != 2 or 0 in tensor.shape:
            raise self._bad(tensor.name, f"has shape {list(tensor.shape)}, no matrix")
        return tensor.shape[0], tensor.shape[1]

    def _group(self, qweight: TensorInfo, columns: int, group: int | None) -> int:
        if group is not None and group > columns:
            raise self._bad(qweight.name, f"has {columns} columns, fewer than the group of {group}")
        return columns if group is None else group

    def _shape(self, part: TensorInfo, wanted: tuple[int, ...], weight: TensorInfo) -> None:
        if part.shape != wanted:
            raise self._bad(
                part.name,
                f"has shape {list(part.shape)}; {weight.name!r} {list(weight.shape)} and '{SECTION}' "
                f"want {list(wanted)}",
            )

    def _bad(self, name: str, what: str, code: str = TENSOR_MISMATCH) -> CheckpointError:
        where = self._path
        if self._files:
            tensor = self._tensors.get(name)
            where = self._files[0].parent if tensor is None else self._files[tensor.file]
        return CheckpointError(code, f"{where}: tensor {name!r} {what}")
