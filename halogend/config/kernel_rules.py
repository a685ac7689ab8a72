"""Contradictions between the kernels of a model and where it runs: by the devices that it names, or by the one that
`auto` comes to where a machine is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from halogend.config.codes import Code
from halogend.config.facts import DeviceFacts
from halogend.config.placement import devices_of, is_processor
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import Document, ModelConfig

_ANY = "auto"
_PLAIN = frozenset({"fp32", "bf16", "fp16"})
_FORMATS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"precision": frozenset({"fp16", "fp8"}), "kv_cache_dtype": frozenset({"fp8", "int8"})}
)
"""By field: number formats that only the kernels of accelerators know."""


def check_kernels(document: Document, places: Places) -> Iterator[Problem]:
    """What the document says by itself. What `auto` will be it does not say."""
    for index, model in enumerate(document.models):
        where, named = f"models[{index}]", [ref.id for ref in model.device if ref.id != _ANY]
        if model.kernels.backend == "triton":
            yield from _fused(model, where, places)
        if not _is_any(model):
            found = next((each for each in named if not is_processor(each)), None)
            yield from _on(found, model, where, places)


def check_auto_kernels(document: Document, devices: tuple[DeviceFacts, ...], places: Places) -> Iterator[Problem]:
    """The rest, of each model whose device is `auto`: with what that is on a machine that has these devices."""
    for index, model in enumerate(document.models):
        if _is_any(model):
            (found,) = devices_of(model, document, devices)
            yield from _on(None if is_processor(found) else found, model, f"models[{index}]", places)


def unjudged_kernels(document: Document, places: Places) -> Iterator[Problem]:
    """What holds only where `auto` is an accelerator, for those who look at no machine: nothing of it is wrong yet."""
    for index, model in enumerate(document.models):
        for field, known in _FORMATS.items():
            value = getattr(model, field)
            if _is_any(model) and model.kernels.backend != "triton" and value in known:
                message = f"`{field}` {value} needs an accelerator, and no machine was asked what `device` auto is"
                hint = "assume one with --target DEVICE, or name the device"
                yield places.problem(Code.KERNELS, f"models[{index}].{field}", message, hint)


def _on(accelerator: str | None, model: ModelConfig, where: str, places: Places) -> Iterator[Problem]:
    """Of the first of its devices that is an accelerator; of processors alone where none is."""
    backend = model.kernels.backend
    if accelerator is None:
        yield from _formats(model, where, places)
        return
    if backend in ("cpu", "reference"):
        message = f"`kernels.backend` {backend} runs on processors, and `device` {_means(model, accelerator)}"
        hint = f"write auto or triton{', or device: cpu:0' if _is_any(model) else ''}"
        yield places.problem(Code.KERNELS, f"{where}.kernels.backend", message, hint)
    elif backend == "auto":
        yield from _fused(model, where, places)
    yield from _kept(model, where, places)


def _fused(model: ModelConfig, where: str, places: Places) -> Iterator[Problem]:
    if not model.kernels.flash_attention:
        message = "`kernels.backend` triton has fused attention only, and `flash_attention` is off"
        hint = "leave it on, or take a processor with the backend cpu or reference"
        yield places.problem(Code.KERNELS, f"{where}.kernels.flash_attention", message, hint)


def _means(model: ModelConfig, device: str) -> str:
    return f"auto is {device} here" if _is_any(model) else f"names {device}"


def _is_any(model: ModelConfig) -> bool:
    return model.device[0].id == _ANY


def _formats(model: ModelConfig, where: str, places: Places) -> Iterator[Problem]:
    for field, known in _FORMATS.items():
        value = getattr(model, field)
        if model.kernels.backend != "triton" and value in known:
            none = "auto is a processor here" if _is_any(model) else "names none"
            message = f"`{field}` {value} needs the kernels of accelerators, and `device` {none}"
            hint = "name one, or write kernels: {backend: triton} to compare with on a processor"
            yield places.problem(Code.KERNELS, f"{where}.{field}", message, hint)


def _kept(model: ModelConfig, where: str, places: Places) -> Iterator[Problem]:
    """What an accelerator's kernels keep of keys and values: what products are in, or eight bits."""
    compute = model.precision if model.precision in _PLAIN else "bf16"
    if model.kv_cache_dtype in _PLAIN and model.kv_cache_dtype != compute:
        message = f"`kv_cache_dtype` {model.kv_cache_dtype} is not {compute}, which products are in on an accelerator"
        yield places.problem(Code.KERNELS, f"{where}.kv_cache_dtype", message, "write auto, fp8 or int8")
