"""Devices: what may be used of each, and which of them a model runs on."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from halogend.config import values
from halogend.config.fields import GENERATION, IDENTITY, LIVE, setting
from halogend.config.kinds import CoreList, DeviceChoice, DeviceId, Size, Thermal
from halogend.config.section import Section

_DEVICE_ENTRY = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"id": {"type": "string"}, "weight": {"type": "number", "exclusiveMinimum": 0}},
            "required": ["id"],
            "additionalProperties": False,
        },
    ]
}


class DeviceConfig(Section):
    """What the daemon may use of one device. A device that is not listed is discovered. A list with several
    of `cpu:N` divides the host: each is a device of its own, with its cores and its part of the memory."""

    id: DeviceId = setting("The device, such as cpu:0.", IDENTITY)
    cores: CoreList | None = setting(
        "Processor cores of a `cpu:N`, on which the engines of its models run and no others. A change is a new "
        "generation of the models on it.",
        GENERATION,
        default=None,
        unset="every core that no other device of the list names",
    )
    memory: Size | None = setting(
        "Memory halogend may use on the device.",
        LIVE,
        default=None,
        unit="bytes",
        unset="all the device has; where the host is divided, a share by cores of what the others leave",
    )
    reserve: Size | None = setting(
        "Memory kept free out of it.", LIVE, default=None, unit="bytes", unset="a share that suits the device"
    )
    spare: bool = setting(
        "Kept for newcomers: a model whose new generation does not fit beside the old one is loaded here. No model "
        "may name it, and `auto` never means it.",
        LIVE,
        default=False,
    )
    thermal: Thermal = setting(
        "How hot an accelerator may get: over this its engines rest between steps, so long that it does not get "
        "hotter. `auto` is 78 on an RTX 4090 and 5 below the temperature at which others slow down by themselves, "
        "where that is told; `off` leaves it to the device.",
        LIVE,
        default="auto",
        unit="°C",
    )


class DeviceRef(Section):
    """A device a model runs on."""

    id: DeviceChoice
    weight: float = Field(default=1.0, gt=0, le=1000)


DeviceList = Annotated[
    tuple[DeviceRef, ...],
    BeforeValidator(values.device_entries),
    WithJsonSchema(
        {
            "anyOf": [*_DEVICE_ENTRY["anyOf"], {"type": "array", "items": _DEVICE_ENTRY, "minItems": 1}],
            "x-accepts": "auto, a device such as cpu:0, or a list of devices",
        }
    ),
]
