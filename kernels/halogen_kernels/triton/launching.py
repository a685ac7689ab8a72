"""How a kernel is launched: one function, which every launcher calls.

Normally it runs the kernel. Where variants are compiled ahead, `compiling` puts another function in its place,
which gets the same arguments; so launchers must work with tensors of the device "meta": outputs by `new_empty` or
`empty_like`, nothing read back, no branch on a tensor's values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from halogen_kernels.triton import interpreting

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]
Compile = Callable[[Any, Grid, tuple[Any, ...], Mapping[str, Any]], None]

ALIGNMENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel with one set of constexprs, block sizes among them, and the dtypes of its tensors in order."""

    op: str
    kernel: str
    constexprs: Mapping[str, Any]
    dtypes: tuple[torch.dtype, ...]

    @property
    def name(self) -> str:
        """`split[HEAD_DIM=80,BLOCK=64,num_warps=4](bfloat16,int32)`: unique within an operator."""
        flags = ",".join(f"{key}={value}" for key, value in self.constexprs.items())
        types = ",".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
        return f"{self.kernel}[{flags}]({types})"


_last: ContextVar[tuple[Any, tuple[Any, ...], Mapping[str, Any]] | None] = ContextVar("last", default=None)
_compile: ContextVar[Compile | None] = ContextVar("compile", default=None)
_listener: ContextVar[Callable[[Variant], None] | None] = ContextVar("listener", default=None)


def launch(kernel: Any, grid: Grid, *args: Any, **constexprs: Any) -> None:
    """Runs `kernel` with one program for each point of `grid`. `args` are the tensors and numbers in the kernel's
    order, `constexprs` all that is fixed when it is compiled: flags, block sizes, num_warps, num_stages.

    Tensors must start at a multiple of 16 bytes: kernels are compiled for that. Raises ValueError otherwise."""
    compile_instead = _compile.get()
    if compile_instead is not None:
        compile_instead(kernel, grid, args, constexprs)
        return
    for number, arg in enumerate(args):
        if isinstance(arg, torch.Tensor) and arg.data_ptr() % ALIGNMENT_BYTES:
            raise ValueError(f"argument {number} of {kernel.fn.__name__} does not start at {ALIGNMENT_BYTES} bytes")
    with interpreting.as_on_a_device():
        kernel[grid](*args, **constexprs)
    _last.set((kernel.fn, tuple(arg.dtype for arg in args if isinstance(arg, torch.Tensor)), constexprs))
    listener = _listener.get()
    if listener is not None:
        listener(variant_of(kernel, args, constexprs))


def last() -> Variant:
    """What this thread launched last. Raises LookupError if nothing."""
    launched = _last.get()
    if launched is None:
        raise LookupError("no kernel was launched by this thread")
    fn, dtypes, constexprs = launched
    return Variant(_op(fn), fn.__name__, dict(constexprs), dtypes)


@contextmanager
def launched() -> Iterator[list[Variant]]:
    """Yields a list to which each variant that this thread launches within is added."""
    variants: list[Variant] = []
    token = _listener.set(variants.append)
    try:
        yield variants
    finally:
        _listener.reset(token)


@contextmanager
def compiling(compile_instead: Compile) -> Iterator[None]:
    """Within, this thread's launches call `compile_instead(kernel, grid, args, constexprs)` and run nothing."""
    token = _compile.set(compile_instead)
    try:
        yield
    finally:
        _compile.reset(token)


def variant_of(kernel: Any, args: tuple[Any, ...], constexprs: Mapping[str, Any]) -> Variant:
    dtypes = tuple(arg.dtype for arg in args if isinstance(arg, torch.Tensor))
    return Variant(_op(kernel.fn), kernel.fn.__name__, dict(constexprs), dtypes)


def _op(fn: Any) -> str:
    """An operator has the name of its module."""
    return str(fn.__module__).rpartition(".")[2]
