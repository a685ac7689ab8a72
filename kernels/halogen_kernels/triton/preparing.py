"""Before a model may serve: every kernel that its shapes can lead to is in the cache, so that none is compiled later.

Where compiling is allowed, what is missing is compiled by children on all cores that this process may use; where it
is not, the first missing one is an error that names it. The interpreter has nothing to compile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import triton

from halogen_kernels.triton import cache, targets
from halogen_kernels.triton.rehearsal import Launch, launches
from halogen_kernels.triton.shapes import Shapes, to_text
from halogen_kernels.triton.targets import Target

_NOT_FOR_CHILDREN = ("TRITON_INTERPRET",)
_TAIL_CHARS = 2000


def prepare(
    shapes: Shapes,
    directory: Path,
    *,
    may_compile: bool,
    moved: Callable[[], None] = lambda: None,
    only: Collection[str] = (),
) -> int:
    """How many variants there are; all are in `directory`, which this process uses from now on. `moved` is called
    for each that was compiled or found; `only` are operators' names, none means all. Raises KernelNotFoundError where
    one is missing and may not be compiled, and RuntimeError where one could not be compiled."""
    if triton.knobs.runtime.interpret:
        return 0
    # Beside kernels Triton keeps the modules that speak to a device and load them, of which the first is built when it
    # looks for one: neither in a home that a service has not, nor in a mount that is read only.
    cache.use(directory, may_compile=may_compile and os.access(directory, os.W_OK))
    target = targets.current()
    wanted = launches(target, shapes, only)
    cache.use(directory, may_compile=False)
    missing = [launch for launch in wanted if not _is_there(launch, moved)]
    if missing and not may_compile:
        raise cache.KernelNotFoundError(missing[0].variant, target, directory)
    if missing:
        _compile(target, directory, ["--shapes", to_text(shapes), *_words("--op", only)], moved)
    cache.use(directory, may_compile=may_compile and os.access(directory, os.W_OK))
    return len(wanted)


def _is_there(launch: Launch, moved: Callable[[], None]) -> bool:
    try:
        launch.compile()
    except cache.MissingError:
        return False
    moved()
    return True


def _words(flag: str, values: Collection[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _compile(target: Target, directory: Path, words: Sequence[str], moved: Callable[[], None]) -> None:
    """By a process of its own: this one has a device open, and compilers may die."""
    command = [sys.executable, "-P", "-m", "halogen_kernels.triton.ahead", "--cache-dir", str(directory)]
    command += ["--target", target.name, *words]
    environ = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_CHILDREN}
    told: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ) as child:
        for line in child.stdout or ():
            told.append(line)
            moved()
    if child.returncode:
        raise RuntimeError(f"kernels could not be compiled: {''.join(told)[-_TAIL_CHARS:]}")
