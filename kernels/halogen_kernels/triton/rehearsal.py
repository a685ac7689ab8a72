"""All variants of all kernels, found by calling the launchers without a device.

Each operator's module has `rehearse(shapes)`, which calls its launchers with tensors of the device "meta" once for
each variant that `shapes` can lead to. What they would launch is noted here, and can be compiled, for this machine's
device or for another target: Triton's own warm-up makes exactly the cache entry that a launch looks for there.
"""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

import halogen_kernels.triton as package
from halogen_kernels.triton import launching, targets
from halogen_kernels.triton.launching import Grid, Variant
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.targets import Target

WIDE_BYTES = 1 << 31  # from here on, Triton's code for AMD addresses a tensor in another way


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A variant as it would be launched."""

    variant: Variant
    kernel: Any
    grid: Grid
    args: tuple[Any, ...]
    constexprs: Mapping[str, Any]

    def compile(self) -> Any:
        """Triton's CompiledKernel for its current target, from the cache or made now."""
        return self.kernel.warmup(*self.args, grid=self.grid, **self.constexprs)


def operators() -> dict[str, ModuleType]:
    """The modules of this package that have kernels, by the operator's name."""
    modules = {each.name: importlib.import_module(f"{package.__name__}.{each.name}") for each in _modules()}
    return {name: module for name, module in modules.items() if hasattr(module, "rehearse")}


def launches(target: Target, shapes: Shapes, only: Collection[str] = ()) -> list[Launch]:
    """What `shapes` leads to on `target`, each variant once, in an order that is the same every time. `only` are
    operators' names; none means all. Raises TypeError for a kernel that has variants by a number's value, as Triton
    makes them unless the number is listed in `do_not_specialize`."""
    found: dict[tuple[Any, ...], Launch] = {}

    def note(kernel: Any, grid: Grid, args: tuple[Any, ...], constexprs: Mapping[str, Any]) -> None:
        if target.backend != "interpreter":  # which has no specialised variants
            _check(kernel, args, constexprs)
        variant = launching.variant_of(kernel, args, constexprs)
        key = (variant.op, variant.name, tuple(_kind(arg, target) for arg in args))
        found.setdefault(key, Launch(variant, kernel, grid, args, dict(constexprs)))

    with targets.chosen(target), launching.compiling(note):
        for name, module in operators().items():
            if not only or name in only:
                module.rehearse(shapes)
    return list(found.values())


@contextmanager
def pretending(target: Target) -> Iterator[None]:
    """Within, this process compiles for `target`. For a process that never runs kernels: Triton goes on to believe in
    the device afterwards."""
    with targets.chosen(target):
        triton.runtime.driver.set_active(_Pretended(target))
        yield


class _Pretended:
    """As much of a Triton driver as compiling asks for. Kernels are held by device number, so each target has one."""

    def __init__(self, target: Target) -> None:
        self._target = GPUTarget(target.backend, target.arch, target.warp)
        self._number = 1000 + zlib.crc32(target.name.encode()) % 1_000_000

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._number

    def get_current_stream(self, device: int) -> int:
        return 0


def _modules() -> Iterator[pkgutil.ModuleInfo]:
    return iter(sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name))


def _check(kernel: Any, args: tuple[Any, ...], constexprs: Mapping[str, Any]) -> None:
    name = kernel.fn.__name__
    for parameter, arg in zip(kernel.params, args, strict=False):
        is_number = isinstance(arg, int) and not isinstance(arg, bool)
        if is_number and not parameter.do_not_specialize and not parameter.is_constexpr:
            raise TypeError(f"{name}: {parameter.name} is a number, and not listed in do_not_specialize")
    run_time = {parameter.name for parameter in kernel.params if not parameter.is_constexpr}
    if named := sorted(run_time & set(constexprs)):
        raise TypeError(f"{name}: {', '.join(named)} are no constexprs: pass them in the kernel's order")


def _kind(arg: Any, target: Target) -> str:
    """What Triton makes of an argument that is not specialised."""
    if isinstance(arg, torch.Tensor):
        is_wide = target.backend == "hip" and arg.untyped_storage().nbytes() >= WIDE_BYTES
        return f"{arg.dtype} wide" if is_wide else str(arg.dtype)
    if isinstance(arg, int) and not isinstance(arg, bool):
        return "i32" if -(1 << 31) <= arg < 1 << 31 else "i64"
    return type(arg).__name__
