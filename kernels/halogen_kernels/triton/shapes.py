"""What the variants of a kernel differ in: finite lists, which no model's sizes enlarge.

Widths, counts, lengths and strides are run-time numbers and have no place here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Literal

import torch

from halogen_kernels.values import Activation

KvFormat = Literal["same", "fp8", "int8"]
HeldFormat = Literal["plain", "int8", "int4", "fp8"]

HEAD_DIMS = (64, 80, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class Shapes:
    """The values that each constexpr may take. `dtypes` are the compute dtypes; a `kv_formats` of "same" is the compute
    dtype; `softcaps`, `norms` and `experts` say whether there is one: (False,), (True,) or both. `norms` are of heads
    before they turn. Query heads a key/value head, and windows, are run-time numbers."""

    head_dims: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    kv_formats: tuple[KvFormat, ...]
    weight_formats: tuple[HeldFormat, ...]
    softcaps: tuple[bool, ...] = (False,)
    norms: tuple[bool, ...] = (False, True)
    activations: tuple[Activation, ...] = ("silu",)
    experts: tuple[bool, ...] = (False,)


ALL = Shapes(
    head_dims=HEAD_DIMS,
    dtypes=(torch.bfloat16, torch.float16),
    kv_formats=("same", "fp8", "int8"),
    weight_formats=("plain", "int8", "int4", "fp8"),
    softcaps=(False, True),
    norms=(False, True),
    activations=("silu", "gelu_tanh"),
    experts=(False, True),
)

# One of each kind, and the two head widths that differ most: padded, and the widest.
FEW = Shapes(
    head_dims=(80, 256),
    dtypes=(torch.bfloat16,),
    kv_formats=("same", "int8"),
    weight_formats=("plain", "int8", "int4", "fp8"),
    softcaps=(True,),
    norms=(True,),
    activations=("silu",),
    experts=(False, True),
)

NAMED: Mapping[str, Shapes] = MappingProxyType({"all": ALL, "few": FEW})
_DTYPES = MappingProxyType({"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32})


def power_of_two(number: int) -> int:
    """The least power of two that is `number` or more; 1 for less than that."""
    return 1 << max(number - 1, 0).bit_length()


def to_text(shapes: Shapes) -> str:
    """As JSON, for a command line: `from_text` makes the same again."""
    values = asdict(shapes)
    values["dtypes"] = [str(dtype).removeprefix("torch.") for dtype in shapes.dtypes]
    return json.dumps(values)


def from_text(text: str) -> Shapes:
    """ "all", "few", or what `to_text` made. Raises ValueError."""
    if text in NAMED:
        return NAMED[text]
    try:
        values = json.loads(text)
        dtypes = tuple(_DTYPES[name] for name in values.pop("dtypes"))
        return Shapes(dtypes=dtypes, **{key: tuple(each) for key, each in values.items()})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{text!r} is neither of {', '.join(NAMED)} nor a list of shapes") from error
