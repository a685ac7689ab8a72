"""Kinds of values that several sections take: sizes, names, devices, addresses, lengths and times."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from halogend.config import values

MAX_TOKENS = 1 << 24

Size = Annotated[
    int,
    BeforeValidator(values.size_bytes),
    Field(ge=1, le=values.MAX_BYTES),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": values.MAX_BYTES},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(KiB|MiB|GiB|TiB)$", "maxLength": 32},
            ],
            "x-accepts": "a size such as 70GiB, or a number of bytes",
        }
    ),
]
Name = Annotated[
    str,
    BeforeValidator(values.model_name),
    WithJsonSchema({"type": "string", "pattern": f"^{values.NAME_PATTERN}$", "maxLength": 128}),
]
Host = Annotated[str, BeforeValidator(values.host_address)]
AdminAddress = Annotated[str, BeforeValidator(values.admin_address)]
DeviceId = Annotated[str, BeforeValidator(lambda value: values.device_id(value, auto=False))]
DeviceChoice = Annotated[str, BeforeValidator(lambda value: values.device_id(value, auto=True))]
CoreList = Annotated[
    str,
    BeforeValidator(values.core_list),
    WithJsonSchema({"type": "string", "x-accepts": 'numbers of cores such as "0-3,8", in quotes'}),
]
PathText = Annotated[str, Field(min_length=1, max_length=4096)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Millis = Annotated[int, Field(le=values.DAY_S * 1000)]
Thermal = Annotated[int, Field(ge=40, le=110)] | Literal["auto", "off"]
MetricsCompat = Annotated[
    Literal["vllm"] | None, BeforeValidator(values.off_is_none), WithJsonSchema({"enum": [values.OFF, "vllm"]})
]
EngineVersion = Literal["0.15.2"]
