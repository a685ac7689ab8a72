"""What a kernel is told of a number that is known at run time only."""

from __future__ import annotations

import triton
import triton.language as tl

_SIXTEEN = 16


@triton.jit
def sixteens(number, ALIGNED: tl.constexpr):
    """`number`; where ALIGNED says that it is a multiple of 16, in a form from which the compiler sees it, so that
    rows of that stride or width are read 16 bytes at a time."""
    if ALIGNED:
        number = number // 16 * 16
    return number


def aligned(*numbers: int) -> bool:
    """Whether all are multiples of 16: what the flag ALIGNED of a kernel says."""
    return not any(number % _SIXTEEN for number in numbers)
