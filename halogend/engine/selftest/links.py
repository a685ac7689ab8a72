"""What the links of accelerators carry: between the host's pinned memory and each, and from each to each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_BYTES = 256 << 20
_TIMES = 5
HOST = "host"


def measured() -> Iterator[dict[str, Any]]:
    """`from` and `to` are HOST or the number of a device that this process sees; the best of several copies
    counts, because whatever else uses a link makes it slower and nothing makes it faster."""
    count = torch.cuda.device_count()
    for number in range(count):
        device = torch.device("cuda", number)
        there = torch.empty(_BYTES, dtype=torch.uint8, device=device)
        pinned = torch.empty(_BYTES, dtype=torch.uint8, pin_memory=True)
        yield {"from": HOST, "to": number, "bytes_per_s": _rate(there, pinned)}
        yield {"from": number, "to": HOST, "bytes_per_s": _rate(pinned, there)}
    for source in range(count):
        for target in range(count):
            if source != target:
                here = torch.empty(_BYTES, dtype=torch.uint8, device=torch.device("cuda", source))
                there = torch.empty(_BYTES, dtype=torch.uint8, device=torch.device("cuda", target))
                yield {"from": source, "to": target, "bytes_per_s": _rate(there, here)}


def _rate(target: torch.Tensor, source: torch.Tensor) -> float:
    device = source.device if source.is_cuda else target.device
    best_ms = float("inf")
    with torch.cuda.device(device):
        target.copy_(source, non_blocking=True)
        for _ in range(_TIMES):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch
            began.record()
            target.copy_(source, non_blocking=True)
            ended.record()
            ended.synchronize()
            best_ms = min(best_ms, began.elapsed_time(ended))
    return _BYTES / best_ms * 1e3
