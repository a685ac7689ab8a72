"""Where an engine's tensors lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from halogend.engine.refusal import StartRefusedError

_START_FAILED = "HRT-1010"
_HOST = torch.device("cpu")


class PlaceError(StartRefusedError):
    """The device is not to be had by this process."""

    def __init__(self, message: str) -> None:
        super().__init__(_START_FAILED, message)


@dataclass(frozen=True, slots=True)
class Place:
    """`is_interpreted`: kernels for devices run on the host's tensors, in Triton's interpreter."""

    device: torch.device = _HOST
    is_interpreted: bool = False

    @property
    def is_host(self) -> bool:
        return self.device.type == "cpu"

    @property
    def runs_like_a_device(self) -> bool:
        """Kernels and pool are those of a device."""
        return self.is_interpreted or not self.is_host

    def enter(self) -> None:
        """The calling thread's kernels go to this device from now on."""
        if not self.is_host:
            torch.cuda.set_device(self.device)


def place_of(device: str, backend: str) -> Place:
    """`device` is cpu:N, cuda:N or rocm:N, as the daemon names it. Raises PlaceError where torch does not see it,
    and for a backend that does not run there."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return Place(is_interpreted=backend == "triton")
    if backend != "triton":
        raise PlaceError(f"the backend {backend!r} does not run on {device}; triton does")
    built = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "processors only"
    if built != kind:
        raise PlaceError(f"{device} cannot be used: the installed torch is built for {built}")
    count = torch.cuda.device_count()
    if int(number or 0) >= count:
        raise PlaceError(f"{device} cannot be used: torch sees {count} devices")
    return Place(torch.device("cuda", int(number or 0)))
