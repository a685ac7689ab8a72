"""Where the models of a document will look for compiled kernels, and for which architectures.

Pure: it knows no compiler, and not which kernels there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from halogend.config.facts import DeviceFacts
from halogend.config.placement import devices_of, spares
from halogend.config.schema import Document, ModelConfig
from halogend.control.machine import Machine


def kernel_folders(document: Document, machine: Machine) -> dict[str, tuple[str, ...]]:
    """By folder, such as `kernels.cache_dir`, the architectures (sm_90, gfx1151) of the accelerators that its models
    may come to be on, in the order of the document; empty where all are on processors. The folder of models that name
    none is the machine's."""
    found: dict[str, dict[str, None]] = {}
    for model in document.models:
        for device in _places(model, document, machine.devices):
            found.setdefault(model.kernels.cache_dir or machine.kernel_cache, {})[device.arch] = None
    return {folder: tuple(archs) for folder, archs in found.items()}


def folders_of_all(machine: Machine) -> dict[str, tuple[str, ...]]:
    """The same where no document says what runs: every accelerator that can be used."""
    archs = tuple(dict.fromkeys(each.arch for each in machine.devices if _takes_kernels(each)))
    return {machine.kernel_cache: archs} if archs else {}


def _places(model: ModelConfig, document: Document, devices: tuple[DeviceFacts, ...]) -> Iterator[DeviceFacts]:
    """Its own devices, and those of their kind that a newcomer may be put on: kept spare, or, where any will do, every
    other."""
    own, kept = devices_of(model, document, devices), spares(document, devices)
    kinds, is_any = {_kind(each) for each in own}, model.device[0].id == "auto"
    for device in devices:
        may_land = _kind(device.id) in kinds and (is_any or device.id in kept)
        if _takes_kernels(device) and (device.id in own or may_land):
            yield device


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _takes_kernels(device: DeviceFacts) -> bool:
    return device.is_accelerator and not device.unusable
