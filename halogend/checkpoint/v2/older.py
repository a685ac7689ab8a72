"""What a checkpoint that was written over another of its name leaves of that one: parts of a set of another size."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.files import open_regular
from halogend.checkpoint.v2.header import HEADER_BYTES, decode_header
from halogend.checkpoint.v2.reading import read_at


def remove_older_parts(path: Path, kept: Collection[Path]) -> list[Path]:
    """Takes away every part beside the checkpoint at `path` that has its name but for the number and is none of
    `kept`; which those were. By that name a part is of no other manifest; what is no part stays."""
    pattern = re.compile(rf"{re.escape(path.stem)}-\d{{5}}-of-\d{{5}}{re.escape(path.suffix)}")
    names = {each.name for each in kept}
    removed = []
    with contextlib.suppress(OSError):  # what cannot be looked at or removed is only in the way
        for entry in sorted(os.scandir(path.parent), key=lambda each: each.name):
            found = path.with_name(entry.name)
            if pattern.fullmatch(entry.name) and entry.name not in names and _is_part(found):
                found.unlink(missing_ok=True)
                removed.append(found)
    return removed


def _is_part(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            return decode_header(read_at(file.fileno(), path, 0, min(size, HEADER_BYTES)), size, path).is_part
    except CheckpointError:
        return False
