"""Which device a model runs on and what share of its KV budget the model may use."""

from __future__ import annotations

from collections.abc import Mapping

from halogend.config.facts import DeviceFacts
from halogend.config.schema import Document, ModelConfig

SHARED_KV_RATIO = 0.75
FIRST_DEVICE = "cpu:0"


def device_of(model: ModelConfig, devices: tuple[DeviceFacts, ...] | None = None) -> str:
    """The id of the model's first device. `auto` is the first of `devices`, which are in order of choice."""
    wanted = model.device[0].id
    if wanted == "auto":
        return devices[0].id if devices else FIRST_DEVICE
    return next((device.id for device in devices or () if wanted in (device.id, *device.aliases)), wanted)


def by_device(
    document: Document, devices: tuple[DeviceFacts, ...] | None = None
) -> Mapping[str, tuple[tuple[int, ModelConfig], ...]]:
    """Device id -> the models on it with their index in the document."""
    placed: dict[str, tuple[tuple[int, ModelConfig], ...]] = {}
    for index, model in enumerate(document.models):
        device = device_of(model, devices)
        placed[device] = (*placed.get(device, ()), (index, model))
    return placed


def kv_ratios(document: Document, devices: tuple[DeviceFacts, ...] | None = None) -> dict[str, float]:
    """Model name -> share of its device's KV budget, for every model without kv_cache_bytes.

    Models that set no ratio share 0.75, or what the others leave if that is less.
    """
    shares: dict[str, float] = {}
    for placed in by_device(document, devices).values():
        by_ratio = [model for _, model in placed if model.kv_cache_bytes is None]
        taken = sum(model.kv_cache_ratio or 0.0 for model in by_ratio)
        unset = sum(model.kv_cache_ratio is None for model in by_ratio)
        rest = max(0.0, min(SHARED_KV_RATIO, 1.0 - taken))
        shares |= {m.name: rest / unset if m.kv_cache_ratio is None else m.kv_cache_ratio for m in by_ratio}
    return shares
