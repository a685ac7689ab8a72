"""What a cache of kernels has for a target, in one readable file beside Triton's entries.

For people and tables: whether a kernel is there is decided by Triton's entries alone. Written at once (a temporary
file, renamed), and only if it would differ, so that a complete cache can be a read-only mount.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import triton

from halogen_kernels.triton.resources import Resources
from halogen_kernels.triton.targets import Target

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One compiled variant; `key` is Triton's, `source` the hash of the kernel's source and of all it calls."""

    op: str
    variant: str
    key: str
    source: str
    resources: Resources


def path_of(directory: Path, target: Target) -> Path:
    return directory / f"index-{target.name}.json"


def read(directory: Path, target: Target) -> dict[str, Entry]:
    """By Triton's key. Empty where there is none, one that cannot be read, or one of another format or Triton."""
    try:
        found = json.loads(path_of(directory, target).read_text())
        if (found["format"], found["triton"]) != (FORMAT, triton.__version__):
            return {}
        entries = [Entry(**{**each, "resources": Resources(**each["resources"])}) for each in found["kernels"]]
    except (OSError, ValueError, KeyError, TypeError):  # what is no such list
        return {}
    return {entry.key: entry for entry in entries}


def write(directory: Path, target: Target, entries: Sequence[Entry]) -> None:
    """Raises OSError."""
    kernels = [asdict(entry) for entry in sorted(entries, key=lambda each: (each.op, each.variant, each.key))]
    whole = {"format": FORMAT, "target": target.name, "triton": triton.__version__, "kernels": kernels}
    text = json.dumps(whole, indent=1) + "\n"
    path = path_of(directory, target)
    if path.exists() and path.read_text() == text:
        return
    # Machines that share a folder may have processes of one number.
    temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
