"""The document a command line names: a file, a directory of files, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halogend.config.schema import Document

DOCUMENT_HELP = "the document: a file, or a directory whose *.yaml are merged; - reads standard input"


class UnreadableError(Exception):
    """It cannot be read; says which path and why."""


def read_document(file: str) -> tuple[bytes, str]:
    """The bytes as the daemon would take them, and what problems call them. Raises UnreadableError."""
    from halogend.control.source import SourceError
    from halogend.control.source_files import read_content

    if file == "-":
        return sys.stdin.buffer.read(), "<stdin>"
    path = Path(file)
    try:
        return (read_content(path).data if path.is_dir() else path.read_bytes()), file
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from error
    except SourceError as error:
        raise UnreadableError(str(error)) from error


def as_far_as_known(path: Path, environ: Mapping[str, str]) -> Document | None:
    """What can be told of the document that lies there, whatever is wrong with it: that is said by who judges it."""
    from halogend.config.parse import parse

    try:
        data, name = read_document(str(path))
    except UnreadableError:
        return None
    return parse(data, name, environ).partial
