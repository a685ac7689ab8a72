"""Contradictions between the kernels of a model and where it runs: those that the document says by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from halogend.config.codes import Code
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import Document, ModelConfig

_PROCESSOR, _ANY = "cpu", "auto"
_PLAIN = frozenset({"fp32", "bf16", "fp16"})
_FORMATS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"precision": frozenset({"fp16", "fp8"}), "kv_cache_dtype": frozenset({"fp8", "int8"})}
)
"""By field: number formats that only the kernels of accelerators know."""


def check_kernels(document: Document, places: Places) -> Iterator[Problem]:
    """Of each model."""
    for index, model in enumerate(document.models):
        where, backend = f"models[{index}]", model.kernels.backend
        path, accelerator = f"{where}.kernels", _accelerator(model)
        if accelerator is not None and backend in ("cpu", "reference"):
            message = f"`kernels.backend` {backend} runs on processors, and `device` names {accelerator}"
            yield places.problem(Code.KERNELS, f"{path}.backend", message, "write auto or triton")
        elif not model.kernels.flash_attention and (accelerator is not None or backend == "triton"):
            message = "`kernels.backend` triton has fused attention only, and `flash_attention` is off"
            hint = "leave it on, or take a processor with the backend cpu or reference"
            yield places.problem(Code.KERNELS, f"{path}.flash_attention", message, hint)
        if accelerator is None and backend != "triton":
            yield from _formats(model, where, places)
        if accelerator is not None:
            yield from _kept(model, where, places)


def _formats(model: ModelConfig, where: str, places: Places) -> Iterator[Problem]:
    for field, known in _FORMATS.items():
        value = getattr(model, field)
        if value in known:
            message = f"`{field}` {value} needs the kernels of accelerators, and `device` names none"
            hint = "name one, or write kernels: {backend: triton} to compare with on a processor"
            yield places.problem(Code.KERNELS, f"{where}.{field}", message, hint)


def _kept(model: ModelConfig, where: str, places: Places) -> Iterator[Problem]:
    """What an accelerator's kernels keep of keys and values: what products are in, or eight bits."""
    compute = model.precision if model.precision in _PLAIN else "bf16"
    if model.kv_cache_dtype in _PLAIN and model.kv_cache_dtype != compute:
        message = f"`kv_cache_dtype` {model.kv_cache_dtype} is not {compute}, which products are in on an accelerator"
        yield places.problem(Code.KERNELS, f"{where}.kv_cache_dtype", message, "write auto, fp8 or int8")


def _accelerator(model: ModelConfig) -> str | None:
    """The first that the model names."""
    kinds = {ref.id: ref.id.partition(":")[0] for ref in model.device}
    return next((id_ for id_, kind in kinds.items() if kind not in (_PROCESSOR, _ANY)), None)
