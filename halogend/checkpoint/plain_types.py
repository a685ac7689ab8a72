"""The element types of safetensors files, by the names they have there."""

from __future__ import annotations

import enum


class PlainType(enum.Enum):
    """An element type: its name in the file and its bytes. `block_elements` and `block_bytes` say the
    same in the words of block formats."""

    F64 = ("F64", 8)
    F32 = ("F32", 4)
    F16 = ("F16", 2)
    BF16 = ("BF16", 2)
    F8_E4M3 = ("F8_E4M3", 1)
    F8_E5M2 = ("F8_E5M2", 1)
    I64 = ("I64", 8)
    I32 = ("I32", 4)
    I16 = ("I16", 2)
    I8 = ("I8", 1)
    U64 = ("U64", 8)
    U32 = ("U32", 4)
    U16 = ("U16", 2)
    U8 = ("U8", 1)
    BOOL = ("BOOL", 1)

    def __init__(self, label: str, nbytes: int) -> None:
        self.label = label
        self.block_elements = 1
        self.block_bytes = nbytes


PLAIN_TYPES = {kind.label: kind for kind in PlainType}
