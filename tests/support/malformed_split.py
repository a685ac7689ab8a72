"""Malformed split GGUF models: three parts, of which the first holds no tensor, with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.malformed_files import LFS_POINTER, Entry, Folder, gguf
from support.malformed_gguf import KEYS, tensors

PARTS = 3


def part_name(number: int) -> str:
    """`number` counts from 1."""
    return f"model-{number:05}-of-{PARTS:05}.gguf"


def _part(number: int, entries: list[Entry], **changes: Any) -> bytes:
    """`changes` are of the split keys; None leaves one out."""
    split = {"no": number - 1, "count": PARTS, "tensors_count": len(tensors())} | changes
    keys = {f"split.{name.replace('_', '.')}": value for name, value in split.items() if value is not None}
    first = KEYS if number == 1 else {}
    return gguf((first | keys).items(), entries)


def model(second: dict[str, Any] | None = None) -> Folder:
    entries = list(tensors().values())
    return {
        part_name(1): _part(1, []),
        part_name(2): _part(2, entries[:12], **(second or {})),
        part_name(3): _part(3, entries[12:]),
    }


def _without(number: int) -> Folder:
    return {name: data for name, data in model().items() if name != part_name(number)}


def _foreign() -> Folder:
    """A second part of a model with more tensors."""
    return model({"tensors_count": 290})


def _swapped() -> Folder:
    folder = model()
    return folder | {part_name(2): folder[part_name(3)], part_name(3): folder[part_name(2)]}


def _in_two_parts() -> Folder:
    entries = list(tensors().values())
    return model() | {part_name(3): _part(3, [*entries[12:], entries[3]])}


def _tensor_lost() -> Folder:
    entries = list(tensors().values())
    return model() | {part_name(3): _part(3, entries[12:-1])}


def _renamed() -> Folder:
    folder = model()
    return {**_without(1), "part-one.gguf": folder[part_name(1)]}


def _cut_part() -> Folder:
    folder = model()
    data = folder[part_name(2)]
    return folder | {part_name(2): data[: len(data) - 100]}


def _other_architecture() -> Folder:
    entries = list(tensors().values())[:12]
    split = {"split.no": 1, "split.count": PARTS, "split.tensors.count": len(tensors())}
    return model() | {part_name(2): gguf(({"general.architecture": "gemma3"} | split).items(), entries)}


CASES: dict[str, Callable[[], Folder]] = {
    "sound-gguf-split": model,
    "split-part-missing": lambda: _without(3),
    "split-part-of-another-model": _foreign,
    "split-part-of-another-architecture": _other_architecture,
    "split-parts-swapped": _swapped,
    "split-part-without-number": lambda: model({"no": None}),
    "split-part-lfs-pointer": lambda: model() | {part_name(2): LFS_POINTER},
    "split-part-cut": _cut_part,
    "split-second-part-named": model,
    "split-first-part-renamed": _renamed,
    "split-tensor-in-two-parts": _in_two_parts,
    "split-tensor-lost": _tensor_lost,
}
