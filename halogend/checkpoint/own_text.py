"""What a checkpoint says of text, whatever its format: tokenizer, chat template, sampling defaults.

Owns where each format has them; what they mean is of `tokenizer_files`, `sampling` and the text process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.errors import KEY_INVALID, CheckpointError
from halogend.checkpoint.files import is_directory
from halogend.checkpoint.formats import resolve_format
from halogend.checkpoint.gguf import GgufHeader, read_header, read_header_within
from halogend.checkpoint.sampling import directory_sampling, gguf_sampling
from halogend.checkpoint.text_sources import Directory, TextSource
from halogend.checkpoint.tokenizer_files import read_text_files
from halogend.checkpoint.v2.entries import TEXT_PREFIX
from halogend.checkpoint.v2.reader import V2File, open_v2

TEMPLATE_KEY = "tokenizer.chat_template"  # of a GGUF file
_GGUF = "gguf"


@dataclass(frozen=True, slots=True)
class Embedded:
    """The files of a directory inside a v2 checkpoint. Those that are read have the bytes that were written."""

    file: V2File

    @property
    def place(self) -> Path:
        return self.file.path / "text"

    def has(self, name: str) -> bool:
        return TEXT_PREFIX + name in self.file.entries

    def read(self, name: str, most: int, code: str = KEY_INVALID) -> bytes:
        self.check(name, most, code)
        return self.file.text(name)

    def check(self, name: str, most: int, code: str = KEY_INVALID) -> None:
        """No entry is empty, and whether it lies in the file was looked at when that was opened."""
        if self.file.entries[TEXT_PREFIX + name].nbytes > most:
            raise CheckpointError(code, f"{self.place / name}: is larger than {most >> 20} MiB")


def open_text(path: str | Path, load_format: str) -> GgufHeader | TextSource:
    """Of the checkpoint at `path`, of which no more is looked at than must be. Raises CheckpointError."""
    path = Path(path)
    match resolve_format(path, load_format):
        case "gguf":
            return read_header(path)
        case "v2":
            return _of_v2(open_v2(path))
        case _:
            return Directory(path if is_directory(path) else path.parent)


def text_of(checkpoint: Checkpoint) -> GgufHeader | TextSource:
    """Of one that was opened. Raises CheckpointError."""
    if checkpoint.v2 is not None:
        return _of_v2(checkpoint.v2)
    return Directory(checkpoint.path) if checkpoint.gguf is None else checkpoint.gguf


def has_template(text: GgufHeader | TextSource) -> bool:
    """Whether there is a chat template. Raises CheckpointError for a tokenizer's file that is broken, too."""
    if isinstance(text, GgufHeader):
        return text.has(TEMPLATE_KEY)
    return read_text_files(text).template is not None


def sampling_of(text: GgufHeader | TextSource, overridden: Collection[str]) -> Mapping[str, float]:
    """The sampling defaults but for those `overridden`. Raises CheckpointError."""
    return gguf_sampling(text, overridden) if isinstance(text, GgufHeader) else directory_sampling(text, overridden)


def _of_v2(file: V2File) -> GgufHeader | TextSource:
    if file.metadata.text != _GGUF:
        return Embedded(file)
    entry = file.entries[TEXT_PREFIX + _GGUF]
    return read_header_within(file.files[entry.part], (entry.offset, entry.end))
