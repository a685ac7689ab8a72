"""What the device at hand can do at most, measured in the same run as the kernels that are held against it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from timing import timed

COPY_BYTES = 1 << 30
PRODUCT_SIZE = 8192
SMALL_COPY_BYTES = 1 << 24
SMALL_PRODUCT_SIZE = 256


@dataclass(frozen=True, slots=True)
class Ceilings:
    """`bytes_s` counts a copy's bytes as read and as written; `operations_s` two for each multiplication of a large
    product in `dtype`, of random numbers: zeros would draw less power and run faster."""

    name: str
    dtype: torch.dtype
    bytes_s: float
    operations_s: float


def measure(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """In about a second on a GPU; smaller tasks on a CPU, whose figures only show that they can be had."""
    large = device.type == "cuda"
    nbytes, size = (COPY_BYTES, PRODUCT_SIZE) if large else (SMALL_COPY_BYTES, SMALL_PRODUCT_SIZE)
    copied, multiplied = copy_seconds(nbytes, device), product_seconds(size, device, dtype)
    name = torch.cuda.get_device_name(device) if large else "CPU, where Triton's kernels are interpreted"
    return Ceilings(name, dtype, 2 * nbytes / copied, 2 * size**3 / multiplied)


def copy_seconds(nbytes: int, device: torch.device) -> float:
    source = torch.empty(nbytes // 4, dtype=torch.int32, device=device).random_()
    target = torch.empty_like(source)
    return timed([lambda: target.copy_(source)], device).seconds


def product_seconds(size: int, device: torch.device, dtype: torch.dtype) -> float:
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    product = torch.empty(size, size, dtype=dtype, device=device)
    return timed([lambda: torch.mm(left, right, out=product)], device).seconds
