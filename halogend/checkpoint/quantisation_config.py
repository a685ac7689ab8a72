"""What `quantization_config` of a Hugging Face config.json says, as far as it decides how bytes are read.

Defaults are those of `transformers`' own configuration classes. Keys about activations, calibration
and kernels say nothing about the bytes and are not looked at; which matrices were left alone is seen
from the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.checkpoint.errors import KEY_INVALID, TYPE_UNSUPPORTED, CheckpointError, shown

SECTION = "quantization_config"


@dataclass(frozen=True, slots=True)
class AwqScheme:
    """`group` columns share a scale, None: all of a row."""

    group: int | None
    zero_point: bool


@dataclass(frozen=True, slots=True)
class GptqScheme:
    """`group` columns share a scale, None: all of a row. The last two are those of `stored.Gptq`."""

    group: int | None
    act_order: bool
    zero_offset: int
    zero_carry: bool


@dataclass(frozen=True, slots=True)
class Fp8Scheme:
    """`block` (rows, columns) share a scale, None: all of a matrix."""

    block: tuple[int, int] | None


Scheme = AwqScheme | GptqScheme | Fp8Scheme


def read_scheme(config: Mapping[str, Any], path: Path) -> Scheme:
    """The scheme that the section `config` of the file or directory `path` states.

    Raises CheckpointError naming the key for a method, width or version that is not read.
    """
    section = _Section(config, path)
    method = section.text("quant_method", None)
    if method == "awq":
        return _awq(section)
    if method == "gptq":
        return _gptq(section)
    if method == "fp8":
        return _fp8(section)
    raise section.unsupported("quant_method", method, "supported are awq, gptq and fp8")


_MOST = 1 << 31  # of a number of bits, or of elements in a group


@dataclass(frozen=True, slots=True)
class _Section:
    values: Mapping[str, Any]
    path: Path

    def text(self, key: str, default: str | None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.invalid(key, value, "no string")
        return value.lower()

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.invalid(key, value, "neither true nor false")
        return value

    def number(self, key: str, default: int | None) -> int:
        value = self._get(key, default)
        if type(value) is not int or abs(value) > _MOST:
            raise self.invalid(key, value, f"no whole number of up to {_MOST}")
        return value

    def _get(self, key: str, default: str | int | None) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise CheckpointError(KEY_INVALID, f"{self.path}: key '{SECTION}.{key}' is missing")
        return default

    def invalid(self, key: str, value: Any, what: str) -> CheckpointError:
        return CheckpointError(KEY_INVALID, f"{self.path}: key '{SECTION}.{key}' is {shown(value)}, {what}")

    def unsupported(self, key: str, value: Any, what: str) -> CheckpointError:
        return CheckpointError(TYPE_UNSUPPORTED, f"{self.path}: key '{SECTION}.{key}' is {shown(value)}; {what}")


def _awq(section: _Section) -> AwqScheme:
    _four_bits(section, 4)
    key = "version" if section.values.get("version") is not None else "format"
    version = section.text(key, "gemm")
    if version != "gemm":
        raise section.unsupported(key, version, "only gemm is supported")
    return AwqScheme(_group(section), section.flag("zero_point", True))


def _gptq(section: _Section) -> GptqScheme:
    _four_bits(section, None)
    key = "checkpoint_format" if section.values.get("checkpoint_format") is not None else "format"
    layout = section.text(key, "gptq")
    if layout not in {"gptq", "gptq_v2"}:
        raise section.unsupported(key, layout, "supported are gptq and gptq_v2")
    if section.flag("is_marlin_format", False):
        raise section.unsupported("is_marlin_format", True, "supported are gptq and gptq_v2")
    packing = section.text("pack_dtype", "int32")
    if packing != "int32":
        raise section.unsupported("pack_dtype", packing, "only int32 is supported")
    _refuse_mixed(section)
    offset = 1 if layout == "gptq" else 0
    return GptqScheme(_group(section), section.flag("desc_act", False), offset, bool(offset) and _by_gptqmodel(section))


def _fp8(section: _Section) -> Fp8Scheme:
    experts = section.text("expert_dtype", "fp8")
    if experts != "fp8":
        raise section.unsupported("expert_dtype", experts, "only fp8 is supported")
    block = section.values.get("weight_block_size")
    if block is None:
        return Fp8Scheme(None)
    if not isinstance(block, list) or len(block) != 2 or not all(type(size) is int and size > 0 for size in block):
        raise section.invalid("weight_block_size", block, "no pair of positive whole numbers")
    return Fp8Scheme((block[0], block[1]))


def _four_bits(section: _Section, default: int | None) -> None:
    bits = section.number("bits", default)
    if bits != 4:
        raise section.unsupported("bits", bits, "only 4 is supported")


def _group(section: _Section) -> int | None:
    group = section.number("group_size", 128)
    if group == -1:
        return None
    if group <= 0 or group % 8:
        raise section.unsupported("group_size", group, "supported are -1 and multiples of 8")
    return group


def _refuse_mixed(section: _Section) -> None:
    """GPTQModel can give modules widths and groups of their own; "-:" leaves a module alone."""
    dynamic = section.values.get("dynamic") or {}
    if not isinstance(dynamic, dict):
        raise section.invalid("dynamic", dynamic, "no JSON object")
    for pattern, change in dynamic.items():
        if not pattern.startswith("-:") and change:
            raise section.unsupported(
                "dynamic", {pattern: change}, "only one width and group for all modules is supported"
            )


def _by_gptqmodel(section: _Section) -> bool:
    meta = section.values.get("meta")
    writer = meta.get("quantizer") if isinstance(meta, dict) else None
    names = writer if isinstance(writer, list) else [writer]
    return any(isinstance(name, str) and name.lower().startswith("gptqmodel") for name in names)
