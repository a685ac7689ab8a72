"""Triton's interpreter, made to compute with bfloat16 as devices do.

It holds bfloat16 as 16-bit integers. Made narrower, a float32 is cut off there where every device rounds to the
nearest, and a product of two such tiles would be one of the integers. Both are put right here, in the one place where
the interpreter's builder converts and multiplies; what it does with other types stays as it is. A device also says
nothing of a value that is too large for its type: neither does the interpreter then.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import triton
import triton.language as tl

_KEPT_BITS = 16


_NOTHING: AbstractContextManager[None] = nullcontext()


def as_on_a_device() -> AbstractContextManager[None]:
    """Within, interpreted kernels compute as devices do. Does nothing where kernels are compiled."""
    if not triton.knobs.runtime.interpret:
        return _NOTHING
    _put_right()
    return np.errstate(all="ignore")


@lru_cache(maxsize=1)
def _put_right() -> None:
    from triton.runtime import interpreter  # noqa: PLC0415 (where kernels are compiled, it is not loaded)

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, dot = builder.cast_impl, builder.create_dot

    def rounding_cast(self: Any, source: Any, target: Any) -> Any:
        pair = source.dtype.scalar, target.scalar
        if pair == (tl.float32, tl.bfloat16):
            return handle(narrowed(source.data), tl.bfloat16)
        if pair == (tl.bfloat16, tl.float32):
            return handle(widened(source.data), tl.float32)
        return cast(self, source, target)

    def wide_dot(self: Any, left: Any, right: Any, added: Any, *how: Any) -> Any:
        sides = [
            handle(widened(each.data), tl.float32) if each.dtype.scalar == tl.bfloat16 else each
            for each in (left, right)
        ]
        return dot(self, *sides, added, *how)

    builder.cast_impl, builder.create_dot = rounding_cast, wide_dot


def narrowed(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bfloat16, the even one of two; of a NaN for a NaN."""
    bits = np.asarray(values).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> _KEPT_BITS) & 1)) >> _KEPT_BITS
    return np.asarray(np.where(np.isnan(values), (bits >> _KEPT_BITS) | 0x40, rounded)).astype(np.uint16)


def widened(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (np.asarray(bits).astype(np.uint32) << _KEPT_BITS).astype(np.uint32).view(np.float32)
