"""The type numbers of GGUF: of tensors (with their block layout) and of metadata values.

Source: the GGUF specification and ggml's type table; a test compares every row with the `gguf`
package.
"""

from __future__ import annotations

import enum


class GgmlType(enum.Enum):
    """A tensor's storage: type number, elements a block, bytes a block."""

    F32 = (0, 1, 4)
    F16 = (1, 1, 2)
    Q4_0 = (2, 32, 18)
    Q4_1 = (3, 32, 20)
    Q5_0 = (6, 32, 22)
    Q5_1 = (7, 32, 24)
    Q8_0 = (8, 32, 34)
    Q8_1 = (9, 32, 40)
    Q2_K = (10, 256, 84)
    Q3_K = (11, 256, 110)
    Q4_K = (12, 256, 144)
    Q5_K = (13, 256, 176)
    Q6_K = (14, 256, 210)
    Q8_K = (15, 256, 292)
    IQ2_XXS = (16, 256, 66)
    IQ2_XS = (17, 256, 74)
    IQ3_XXS = (18, 256, 98)
    IQ1_S = (19, 256, 50)
    IQ4_NL = (20, 32, 18)
    IQ3_S = (21, 256, 110)
    IQ2_S = (22, 256, 82)
    IQ4_XS = (23, 256, 136)
    I8 = (24, 1, 1)
    I16 = (25, 1, 2)
    I32 = (26, 1, 4)
    I64 = (27, 1, 8)
    F64 = (28, 1, 8)
    IQ1_M = (29, 256, 56)
    BF16 = (30, 1, 2)
    TQ1_0 = (34, 256, 54)
    TQ2_0 = (35, 256, 66)
    MXFP4 = (39, 32, 17)
    NVFP4 = (40, 64, 36)
    Q1_0 = (41, 128, 18)

    def __init__(self, number: int, block_elements: int, block_bytes: int) -> None:
        self.number = number
        self.block_elements = block_elements
        self.block_bytes = block_bytes


GGML_TYPES = {kind.number: kind for kind in GgmlType}

# Weights never come in these: integers, and what activations are rounded to while a matrix is multiplied.
_NOT_WEIGHTS = {
    GgmlType.Q8_1,
    GgmlType.Q8_K,
    GgmlType.I8,
    GgmlType.I16,
    GgmlType.I32,
    GgmlType.I64,
}
DECODABLE = frozenset(GgmlType) - _NOT_WEIGHTS  # what an engine can turn into numbers


class ValueType(enum.Enum):
    """A metadata value's type number and its struct format ("" where the size varies)."""

    UINT8 = (0, "B")
    INT8 = (1, "b")
    UINT16 = (2, "H")
    INT16 = (3, "h")
    UINT32 = (4, "I")
    INT32 = (5, "i")
    FLOAT32 = (6, "f")
    BOOL = (7, "?")
    STRING = (8, "")
    ARRAY = (9, "")
    UINT64 = (10, "Q")
    INT64 = (11, "q")
    FLOAT64 = (12, "d")

    def __init__(self, number: int, format_char: str) -> None:
        self.number = number
        self.format_char = format_char


VALUE_TYPES = {kind.number: kind for kind in ValueType}
