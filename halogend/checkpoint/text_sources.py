"""Where the files lie that say what a checkpoint knows of text: in a directory, or inside another file.

Whoever reads them asks by name, as a Hugging Face directory has them; messages name the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from halogend.checkpoint.errors import KEY_INVALID
from halogend.checkpoint.files import check_readable, is_there, read_whole
from halogend.checkpoint.json_object import MAX_SETTINGS_BYTES, parse_json_object


class TextSource(Protocol):
    """Small files by their names. Every method raises CheckpointError."""

    @property
    def place(self) -> Path:
        """What messages name, with the file's name behind it."""
        ...

    def has(self, name: str) -> bool: ...

    def read(self, name: str, most: int, code: str = KEY_INVALID) -> bytes:
        """All of a file that is there, of up to `most` bytes; a larger one is refused with `code`."""
        ...

    def check(self, name: str, most: int, code: str = KEY_INVALID) -> None:
        """Raises what `read` would, and with `code` for an empty file, without reading all."""
        ...


@dataclass(frozen=True, slots=True)
class Directory:
    """The files of a directory."""

    place: Path

    def has(self, name: str) -> bool:
        return is_there(self.place / name)

    def read(self, name: str, most: int, code: str = KEY_INVALID) -> bytes:
        return read_whole(self.place / name, most, code)

    def check(self, name: str, most: int, code: str = KEY_INVALID) -> None:
        check_readable(self.place / name, most, code)


def source_of(where: TextSource | Path | str) -> TextSource:
    """A path is a directory's."""
    return Directory(Path(where)) if isinstance(where, str | Path) else where


def read_object(source: TextSource, name: str, most: int = MAX_SETTINGS_BYTES) -> dict[str, Any]:
    """The object in a JSON file that is there. Raises CheckpointError, as `parse_json_object` does too."""
    return parse_json_object(source.read(name, most), f"{source.place / name}:")
