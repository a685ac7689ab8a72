"""The architectures that kernels are compiled for, and which one this thread launches on.

Knows names, product names and limits of architectures; never which devices a machine has. Limits are the
vendors': the CUDA programming guide's table of compute capabilities, and the LDS size in the ISA documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import triton

_KIB = 1024
_CUDA = re.compile(r"sm_([89]\d|1\d\d)")  # from sm_80 on, the first with bfloat16
_HIP = re.compile(r"gfx[0-9a-f]{3,4}")


@dataclass(frozen=True, slots=True)
class Target:
    """`arch` is what Triton calls it, `warp` the threads that run in step, `shared_bytes` what one program may
    have of memory on the chip. `native_fp8`: whether Triton can turn float8 e4m3fn into other types there; where
    it cannot, kernels decode its bits themselves."""

    name: str
    backend: Literal["cuda", "hip", "interpreter"]
    arch: int | str
    warp: int
    shared_bytes: int
    native_fp8: bool = False
    products: tuple[str, ...] = ()


TARGETS: tuple[Target, ...] = (
    Target("sm_80", "cuda", 80, 32, 163 * _KIB, products=("a100",)),
    Target("sm_89", "cuda", 89, 32, 99 * _KIB, native_fp8=True, products=("rtx_4090",)),
    Target("sm_90", "cuda", 90, 32, 227 * _KIB, native_fp8=True, products=("h100", "h200")),
    Target("sm_100", "cuda", 100, 32, 227 * _KIB, native_fp8=True, products=("b200",)),
    Target("gfx1151", "hip", "gfx1151", 32, 64 * _KIB, products=("ai_max_395",)),
    Target("gfx942", "hip", "gfx942", 64, 64 * _KIB, products=("mi300x",)),
)
INTERPRETER = Target("interpreter", "interpreter", "interpreter", 1, 1 << 40)

_chosen: ContextVar[Target | None] = ContextVar("halogen_kernels_target", default=None)


def named(name: str) -> Target:
    """The target of that name, or of that product's name, and architectures that no table names as the devices that
    have them do. Raises ValueError naming those there are."""
    for target in TARGETS:
        if name == target.name or name in target.products:
            return target
    if found := _CUDA.fullmatch(name):
        return _nearest("cuda", int(found[1]), 32)
    if _HIP.fullmatch(name):
        return _nearest("hip", name, 64 if name.startswith("gfx9") else 32)
    known = ", ".join(f"{target.name} ({', '.join(target.products)})" for target in TARGETS)
    raise ValueError(f"{name!r} is no known target; known are {known}")


def current() -> Target:
    """What kernels of this thread run on: the one chosen by `chosen`, the interpreter, or the current device's.
    Raises RuntimeError where there is neither."""
    return _chosen.get() or _present()


@contextmanager
def chosen(target: Target) -> Iterator[None]:
    """Within, `target` is the current one, whatever the machine has."""
    token = _chosen.set(target)
    try:
        yield
    finally:
        _chosen.reset(token)


@lru_cache(maxsize=1)
def _present() -> Target:
    """A process has devices of one kind."""
    if triton.knobs.runtime.interpret:
        return INTERPRETER
    found = triton.runtime.driver.active.get_current_target()
    for target in TARGETS:
        if (found.backend, found.arch) == (target.backend, target.arch):
            return target
    return _nearest(found.backend, found.arch, found.warp_size)


def _nearest(backend: Literal["cuda", "hip"], arch: int | str, warp: int) -> Target:
    """An architecture that no table names: kernels that fit into the least of its vendor's fit there too."""
    own = [target for target in TARGETS if target.backend == backend]
    name = f"sm_{arch}" if backend == "cuda" else str(arch)
    native = backend == "cuda" and isinstance(arch, int) and arch >= 89
    return Target(name, backend, arch, warp, min(target.shared_bytes for target in own), native)
