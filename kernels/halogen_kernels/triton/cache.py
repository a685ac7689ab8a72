"""Where compiled kernels are kept: Triton's own cache, in a folder of ours, which may be a read-only mount.

A process says once which folder that is, and whether it may compile what is not there. Where it may not, a kernel
that is missing is an error, and nothing is ever written to the folder: what Triton builds for itself beside kernels
(the module that loads them) goes to a folder of the process then, if the cache lacks it.

    DIRECTORY/<Triton's key>/NAME.json, NAME.cubin, ...   what Triton looks for, by a key of source, version, target
    DIRECTORY/index-TARGET.json                           what was compiled for a target, by `index`
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import triton
from triton.runtime.cache import FileCacheManager

from halogen_kernels.triton.launching import Variant
from halogen_kernels.triton.targets import Target


class KernelNotFoundError(LookupError):
    """A kernel is not in the cache, and compiling is not allowed."""

    def __init__(self, variant: Variant, target: Target, directory: Path) -> None:
        super().__init__(f"kernel not found for op: {variant.op}: {directory} has no {variant.name} for {target.name}")
        self.variant = variant
        self.target = target
        self.directory = directory

    @property
    def remedy(self) -> str:
        return f"halogend warmup-kernel --target {self.target.name} --cache-dir {self.directory}"


class MissingError(LookupError):
    """What Triton looked for is not in the cache, and compiling is not allowed. Says a kernel's name alone."""


def enter(directory: Path) -> None:
    """Before much is compiled: there is such a folder, and kernels can be put there. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK):
        raise PermissionError(errno.EACCES, "kernels are missing, and none can be written there")


def use(directory: Path, *, may_compile: bool) -> None:
    """This process keeps its kernels in `directory` from now on. Where it may not compile, what is missing raises
    MissingError, at a launch too."""
    triton.knobs.cache.dir = str(directory)
    triton.knobs.cache.manager_class = _Kept if may_compile else _Found


def use_what_is_there(directory: Path) -> None:
    """As `use`, for a process that nobody waits for: what is missing is compiled, and kept for others where the folder
    can be written, else for the process alone."""
    try:
        enter(directory)
    except OSError:
        use(directory, may_compile=False)
        triton.knobs.cache.manager_class = _Beside
    else:
        use(directory, may_compile=True)


def directory() -> Path:
    """Where this process keeps its kernels."""
    return Path(triton.knobs.cache.dir)


class _Kept(FileCacheManager):  # type: ignore[misc]  # Triton has no types
    """As Triton's, but a group of files names no folder, so that the cache may be moved, copied and mounted, and says
    how long each is: one that was copied in part, or was being written when the machine stopped, is not there."""

    def get_group(self, filename: str) -> dict[str, str] | None:
        found = self.get_file(f"__grp__{filename}")
        if found is None:
            return None
        try:
            sizes = json.loads(Path(found).read_text())["sizes"]
            paths = {name: self.get_file(name) for name in sizes}
            whole = {name: path for name, path in paths.items() if path and _size(path) == sizes[name]}
        except (OSError, ValueError, KeyError, TypeError):  # what is no such list
            return None
        return whole if len(whole) == len(sizes) else None

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        sizes = {name: _size(path) for name, path in sorted(group.items())}
        return str(self.put(json.dumps({"sizes": sizes}), f"__grp__{filename}", binary=False))


class _Found(_Kept):
    """Kernels are read as groups of files; the rest of what Triton keeps as single ones."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self.lock_path = None
        self.cache_dir = str(directory() / key)

    def get_group(self, filename: str) -> dict[str, str]:
        found = super().get_group(filename)
        if found is None:
            raise MissingError(filename.removesuffix(".json"))
        return found

    def get_file(self, filename: str) -> str | None:
        kept = Path(self.cache_dir) / filename
        if kept.exists():
            return str(kept)
        own = Path(_own_directory()) / self.key / filename
        return str(own) if own.exists() else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        path = Path(_own_directory()) / self.key / filename
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
        return str(path)


class _Beside(_Found):
    """What is missing is compiled into a folder of the process."""

    def get_group(self, filename: str) -> dict[str, str] | None:  # type: ignore[override]  # as those above `_Found`
        return _Kept.get_group(self, filename)


def _size(path: str) -> int:
    return Path(path).stat().st_size


@lru_cache(maxsize=1)
def _own_directory() -> str:
    """Of this process alone, and gone with it: a shared place that anyone can write would be a way in."""
    made = tempfile.mkdtemp(prefix="halogen-kernels-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
